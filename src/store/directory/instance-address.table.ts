// Addresses of instances in a fleet, each written by the host that has the VM: other hosts answer for its name.

import { sqliteTable, text } from 'drizzle-orm/sqlite-core'
import { instances } from './instance.table.ts'

export const instanceAddresses = sqliteTable('instance_addresses', {
  instanceId: text('instance_id')
    .primaryKey()
    .references(() => instances.id, { onDelete: 'cascade' }),
  address: text('address'),
  addressV6: text('address_v6'),
})

export type InstanceAddress = Pick<typeof instanceAddresses.$inferSelect, 'address' | 'addressV6'>
