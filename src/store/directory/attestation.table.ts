// The attestation of each instance's claim: one row per instance that became ready, deleted with the instance.

import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import { instances } from './instance.table.ts'

export const instanceAttestations = sqliteTable('instance_attestations', {
  instanceId: text('instance_id')
    .primaryKey()
    .references(() => instances.id, { onDelete: 'cascade' }),
  /** Base64url: the appliance's nonce for the claim. */
  nonce: text('nonce').notNull(),
  /** `ssh-ed25519 AAAA…`, as in the statement. */
  sshHostKey: text('ssh_host_key').notNull(),
  /** By the clock of the host. */
  attestedAtMs: integer('attested_at_ms').notNull(),
  /** An InstanceAttestation, JSON. */
  document: text('document').notNull(),
})

export type InstanceAttestationRow = typeof instanceAttestations.$inferSelect
