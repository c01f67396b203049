// Usage of each key by model, day (UTC) and host. Appends to the usage ledger write this host's, the fleet's copy
// those of others; we only read and purge it.

import { index, integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import { organizations } from '../organization.table.ts'

export const usageDays = sqliteTable(
  'usage_days',
  {
    organizationId: text('organization_id')
      .notNull()
      .references(() => organizations.id),
    keyPrefix: text('key_prefix').notNull(),
    /** Form: 2026-11-30. */
    day: text('day').notNull(),
    model: text('model').notNull(),
    hostId: text('host_id').notNull(),
    requests: integer('requests').notNull(),
    promptTokens: integer('prompt_tokens').notNull(),
    completionTokens: integer('completion_tokens').notNull(),
    costNanoUsd: integer('cost_nano_usd').notNull(),
    /** The part of it that came at or after the time of day at which the organization was created. */
    lateCostNanoUsd: integer('late_cost_nano_usd').notNull(),
    /** In a fleet: 1 while a report of the row is due. */
    isHeld: integer('is_held').notNull().default(0),
  },
  table => [
    primaryKey({ columns: [table.organizationId, table.keyPrefix, table.day, table.model, table.hostId] }),
    index('usage_days_day').on(table.day),
    index('usage_days_organization').on(table.organizationId, table.day),
  ],
)

export type UsageDay = typeof usageDays.$inferSelect
