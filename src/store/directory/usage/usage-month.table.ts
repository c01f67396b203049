// Usage of each calendar month (UTC) by host. Appends to the usage ledger write this host's, the fleet's copy those
// of others; we only read and purge it.

import { integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import { organizations } from '../organization.table.ts'

export const usageMonths = sqliteTable(
  'usage_months',
  {
    organizationId: text('organization_id')
      .notNull()
      .references(() => organizations.id),
    /** Form: 2026-11. */
    month: text('month').notNull(),
    /** Empty: all keys of the organization. */
    keyPrefix: text('key_prefix').notNull(),
    hostId: text('host_id').notNull(),
    requests: integer('requests').notNull(),
    promptTokens: integer('prompt_tokens').notNull(),
    completionTokens: integer('completion_tokens').notNull(),
    costNanoUsd: integer('cost_nano_usd').notNull(),
    /** In a fleet: 1 while a report of the row is due. */
    isHeld: integer('is_held').notNull().default(0),
  },
  table => [primaryKey({ columns: [table.organizationId, table.month, table.keyPrefix, table.hostId] })],
)

export type UsageMonth = typeof usageMonths.$inferSelect
