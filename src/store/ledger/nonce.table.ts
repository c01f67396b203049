// Attestation nonces that have been used (contract 4.2: single use), across restarts.

import { blob, index, integer, sqliteTable } from 'drizzle-orm/sqlite-core'

export const nonces = sqliteTable(
  'nonces',
  { nonce: blob('nonce', { mode: 'buffer' }).primaryKey(), atMs: integer('at_ms').notNull() },
  table => [index('nonces_at').on(table.atMs)],
)
