// Events for the operator at 3 a.m.: a bounded journal of decisions, failures and recoveries. No secrets.

import { index, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'

export const events = sqliteTable(
  'events',
  {
    id: integer('id').primaryKey({ autoIncrement: true }),
    atMs: integer('at_ms').notNull(),
    /** `instance.ready`, `vm.failed`, `nft.restored` … */
    kind: text('kind').notNull(),
    /** The organization, instance or VM of the event; empty for the host. */
    subject: text('subject').notNull(),
    detail: text('detail', { mode: 'json' }).$type<Record<string, unknown>>().notNull(),
  },
  table => [index('events_subject').on(table.subject, table.id)],
)

export type Event = typeof events.$inferSelect
