// Passkeys by which people log in to this host's console. Public halves only.

import { blob, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'

export const passkeys = sqliteTable('passkeys', {
  /** Credential id, base64url (WebAuthn level 3, 4). */
  id: text('id').primaryKey(),
  /** `root`, or the name of an administrator of the configuration. */
  actor: text('actor').notNull(),
  /** The highest role that a session by it gets. */
  role: text('role', { enum: ['admin', 'operator', 'auditor'] }).notNull(),
  /** The name of the console that it was made for. */
  rpId: text('rp_id').notNull(),
  /** Given by the person. */
  name: text('name').notNull(),
  /** COSE_Key (RFC 9052 7). */
  publicKey: blob('public_key', { mode: 'buffer' }).notNull(),
  counter: integer('counter').notNull(),
  createdAtMs: integer('created_at_ms').notNull(),
  lastUsedAtMs: integer('last_used_at_ms'),
})

export type Passkey = typeof passkeys.$inferSelect
