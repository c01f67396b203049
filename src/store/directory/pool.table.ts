// VMs that a host keeps booted and that have no owner yet.

import { index, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'

/** The warm pool. The row is written before the VM is made; the transaction that gives the VM away deletes it. */
export const poolVms = sqliteTable(
  'pool_vms',
  {
    vmId: text('vm_id').primaryKey(),
    hostId: text('host_id').notNull(),
    /** SHA-256 of the manifest of the image that it boots, in hexadecimal digits. */
    imageDigest: text('image_digest').notNull(),
    /** Platform, CPU model, vCPUs and memory, as text. */
    shape: text('shape').notNull(),
    /** The key of its agent's hello; null until then. A restarted agent has another. */
    boxKey: text('box_key'),
    createdAtMs: integer('created_at_ms').notNull(),
  },
  table => [index('pool_vms_host').on(table.hostId, table.createdAtMs)],
)

export type PoolVm = typeof poolVms.$inferSelect
