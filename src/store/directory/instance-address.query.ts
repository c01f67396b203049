// Addresses of instances in a fleet. Effects: SQL.

import { eq, sql } from 'drizzle-orm'
import { builtOnce, type DirectoryDb } from '../db.ts'
import { type InstanceAddress, instanceAddresses } from './instance-address.table.ts'

/** Null: none is known. */
export function addressOf(db: DirectoryDb, instanceId: string): InstanceAddress | null {
  return selectAddress(db).get({ instanceId }) ?? null
}

const selectAddress = builtOnce((db: DirectoryDb) => {
  const { address, addressV6 } = instanceAddresses
  const where = eq(instanceAddresses.instanceId, sql.placeholder('instanceId'))
  return db.select({ address, addressV6 }).from(instanceAddresses).where(where).prepare()
})

/** Null: it has none any more. */
export function setAddress(db: DirectoryDb, instanceId: string, addresses: InstanceAddress | null): void {
  if (addresses === null) db.delete(instanceAddresses).where(eq(instanceAddresses.instanceId, instanceId)).run()
  else {
    db.insert(instanceAddresses)
      .values({ instanceId, ...addresses })
      .onConflictDoUpdate({ target: instanceAddresses.instanceId, set: { ...addresses } })
      .run()
  }
}
