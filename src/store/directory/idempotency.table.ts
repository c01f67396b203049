// Responses to creates that carried an Idempotency-Key, kept for 24 hours (contract 4.1, 8).

import { blob, index, integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import { organizations } from './organization.table.ts'

export const idempotency = sqliteTable(
  'idempotency',
  {
    organizationId: text('organization_id')
      .notNull()
      .references(() => organizations.id),
    key: text('key').notNull(),
    /** SHA-256 of the request's canonical body: another body under the same key is a conflict. */
    bodySha256: blob('body_sha256', { mode: 'buffer' }).notNull(),
    responseStatus: integer('response_status').notNull(),
    /** `data` of the first response, verbatim JSON. */
    responseData: text('response_data').notNull(),
    createdAtMs: integer('created_at_ms').notNull(),
  },
  table => [
    primaryKey({ columns: [table.organizationId, table.key] }),
    index('idempotency_created').on(table.createdAtMs),
  ],
)

export type Idempotency = typeof idempotency.$inferSelect
