// Organizations: who owns instances and keys. Slugs are assigned by the operator (contract 2.2).

import { integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'
import type { OrganizationQuotas } from '../../contract/admin/organizations/quotas.ts'
import type { ShortBudgets } from '../../contract/key-rules.ts'

export const organizations = sqliteTable('organizations', {
  id: text('id').primaryKey(),
  slug: text('slug').notNull().unique(),
  status: text('status', { enum: ['active', 'suspended'] }).notNull(),
  /** Signup: the anchor of billing periods. */
  createdAtMs: integer('created_at_ms').notNull(),
  /** For all its gateway keys together, per calendar month (UTC). Null for no limit. */
  budgetNanoUsd: integer('budget_nano_usd'),
  budgetTokens: integer('budget_tokens'),
  /** A deletion was accepted: `status` is `suspended` from then on. */
  deletingAtMs: integer('deleting_at_ms'),
  /** Nothing is left but records. The row stays, so that its slug is not reused. */
  deletedAtMs: integer('deleted_at_ms'),
  /** Number of its instances, and of those that are not terminated. Triggers keep them. */
  recordCount: integer('record_count').notNull().default(0),
  livingCount: integer('living_count').notNull().default(0),
  /** Budgets of a day and a week. */
  shortBudgets: text('short_budgets', { mode: 'json' }).$type<ShortBudgets>(),
  /** Limits instead of the configured ones; null for none. */
  quotas: text('quotas', { mode: 'json' }).$type<Partial<OrganizationQuotas>>(),
})

export type Organization = typeof organizations.$inferSelect
