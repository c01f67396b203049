// Keys of the inference gateway `gw_<prefix8>_<secret32>`: of organizations, or minted for an instance at its claim.

import { blob, index, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import type { KeyRules, KeyShortBudgets } from '../../contract/key-rules.ts'
import { instances } from './instance.table.ts'
import { organizations } from './organization.table.ts'

export const gatewayKeys = sqliteTable(
  'gateway_keys',
  {
    prefix: text('prefix').primaryKey(),
    organizationId: text('organization_id')
      .notNull()
      .references(() => organizations.id),
    /** The instance that it was minted for; null for an organization's own. */
    instanceId: text('instance_id').references(() => instances.id, { onDelete: 'set null' }),
    secretSha256: blob('secret_sha256', { mode: 'buffer' }).notNull(),
    /** Null for the configured default. */
    requestsPerMinute: integer('requests_per_minute'),
    tokensPerMinute: integer('tokens_per_minute'),
    concurrencyMax: integer('concurrency_max'),
    createdAtMs: integer('created_at_ms').notNull(),
    expiresAtMs: integer('expires_at_ms'),
    revokedAtMs: integer('revoked_at_ms'),
    lastUsedAtMs: integer('last_used_at_ms'),
    /** Null for every model. */
    models: text('models', { mode: 'json' }).$type<KeyRules['models']>(),
    /** Null if there are none. */
    aliases: text('aliases', { mode: 'json' }).$type<KeyRules['aliases']>(),
    /** Per calendar month (UTC). Null for no limit. */
    budgetNanoUsd: integer('budget_nano_usd'),
    budgetTokens: integer('budget_tokens'),
    /** The client drew the secret and registered its digest; otherwise a host minted the key. */
    isClientMade: integer('client_made', { mode: 'boolean' }).notNull().default(false),
    /** Unique among the valid keys of its organization; null without one. */
    name: text('name'),
    /** Budgets of a day and a week, and of each end user. */
    shortBudgets: text('short_budgets', { mode: 'json' }).$type<KeyShortBudgets>(),
  },
  table => [
    index('gateway_keys_organization').on(table.organizationId),
    index('gateway_keys_instance').on(table.instanceId),
  ],
)

export type GatewayKey = typeof gatewayKeys.$inferSelect
