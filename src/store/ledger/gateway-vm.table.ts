// VMs of the gateway. The row is written before the VM is defined; a VM of it that has no row is dismissed.

import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'

/** `serving`: at most one; the firewall sends new connections to it. `draining`: it finishes open requests. */
const GATEWAY_VM_STATES = ['starting', 'serving', 'draining', 'gone'] as const

export const gatewayVms = sqliteTable('gateways', {
  vmId: text('vm_id').primaryKey(),
  hostId: text('host_id').notNull(),
  /** Digest of its launch parameters, workload included: a VM with another is replaced. */
  shape: text('shape').notNull(),
  state: text('state', { enum: GATEWAY_VM_STATES }).notNull(),
  /** Why it ended, as text. */
  reason: text('reason'),
  /** The VM's verified Ed25519 receipt key, base64url, which signs the usage. */
  receiptKey: text('receipt_key'),
  /** Number of its booked usage rows, and the hexadecimal digest of their last batch. */
  booked: integer('booked').notNull().default(0),
  bookedDigest: text('booked_digest').notNull().default('00'.repeat(32)),
  createdAtMs: integer('created_at_ms').notNull(),
  changedAtMs: integer('changed_at_ms').notNull(),
})

export type GatewayVm = typeof gatewayVms.$inferSelect
export type GatewayVmState = GatewayVm['state']
