// VMs of the gateway. The row is written before the VM is defined; a VM of it that has no row is dismissed.

import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'

/** `serving`: at most one, and the firewall sends new connections to it. `draining`: it ends what it has begun. */
const GATEWAY_STATES = ['starting', 'serving', 'draining', 'gone'] as const

export const gateways = sqliteTable('gateways', {
  vmId: text('vm_id').primaryKey(),
  hostId: text('host_id').notNull(),
  /** Digest of all that it was launched from, its workload among it: a VM of another shape is replaced. */
  shape: text('shape').notNull(),
  state: text('state', { enum: GATEWAY_STATES }).notNull(),
  /** Why it is no more, in words. */
  reason: text('reason'),
  /** Its Ed25519 receipt key, base64url, once it was verified: it signs the usage. */
  receiptKey: text('receipt_key'),
  /** How many rows of its usage are in the books, and the digest of the last batch of them, hexadecimal. */
  booked: integer('booked').notNull().default(0),
  bookedDigest: text('booked_digest').notNull().default('00'.repeat(32)),
  createdAtMs: integer('created_at_ms').notNull(),
  changedAtMs: integer('changed_at_ms').notNull(),
})

export type GatewayVm = typeof gateways.$inferSelect
export type GatewayState = GatewayVm['state']
