// API keys `ca_<prefix>_<secret>`. Only a SHA-256 of the secret is kept (contract 5).

import { blob, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import { organizations } from './organization.table.ts'

export const keys = sqliteTable('keys', {
  /** The 8 public characters; they name the key in every command and log. */
  prefix: text('prefix').primaryKey(),
  organizationId: text('organization_id')
    .notNull()
    .references(() => organizations.id),
  secretSha256: blob('secret_sha256', { mode: 'buffer' }).notNull(),
  scope: text('scope', { enum: ['write', 'read'] }).notNull(),
  createdAtMs: integer('created_at_ms').notNull(),
  revokedAtMs: integer('revoked_at_ms'),
  lastUsedAtMs: integer('last_used_at_ms'),
  /** The client drew the secret and registered its digest; otherwise a host minted the key. */
  isClientMade: integer('client_made', { mode: 'boolean' }).notNull().default(false),
  /** Unique among the valid keys of its organization; null without one. */
  name: text('name'),
})

export type Key = typeof keys.$inferSelect
export type KeyScope = Key['scope']
