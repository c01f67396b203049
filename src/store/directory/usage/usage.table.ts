// The usage ledger: a row per request, append-only. Ids are request ids, so a repeated write changes nothing.

import { index, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import { organizations } from '../organization.table.ts'

/**
 * `reported`: counted by the upstream. `estimated`: by the gateway, because the upstream sent no count. `implausible`:
 * by the gateway, because the upstream's count cannot be true.
 */
const TOKENS_SOURCES = ['reported', 'estimated', 'implausible'] as const
export type TokensSource = (typeof TOKENS_SOURCES)[number]

export const usage = sqliteTable(
  'usage',
  {
    id: text('id').primaryKey(),
    atMs: integer('at_ms').notNull(),
    organizationId: text('organization_id')
      .notNull()
      .references(() => organizations.id),
    keyPrefix: text('key_prefix').notNull(),
    instanceId: text('instance_id'),
    model: text('model').notNull(),
    upstream: text('upstream').notNull(),
    promptTokens: integer('prompt_tokens').notNull(),
    completionTokens: integer('completion_tokens').notNull(),
    /** Billionths of a dollar. */
    costNanoUsd: integer('cost_nano_usd').notNull(),
    outcome: text('outcome', { enum: ['completed', 'aborted', 'failed'] }).notNull(),
    tokensSource: text('tokens_source', { enum: TOKENS_SOURCES }).notNull().default('reported'),
    /** Value from the client, if the operator has enabled it. */
    endUser: text('end_user'),
    /** The request's metadata: JSON of an object of strings, ordered by name. */
    tags: text('tags'),
    /** How many tokens of the prompt came out of a cache. */
    cachedTokens: integer('cached_tokens').notNull().default(0),
  },
  table => [index('usage_organization').on(table.organizationId, table.atMs, table.costNanoUsd)],
)

export type Usage = typeof usage.$inferSelect
export type UsageOutcome = Usage['outcome']
