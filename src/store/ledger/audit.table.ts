// Commands of operators: who asked this host for which change, and what became of it. No secrets.

import { index, integer, sqliteTable, text } from 'drizzle-orm/sqlite-core'

export const audit = sqliteTable(
  'audit',
  {
    seq: integer('seq').primaryKey({ autoIncrement: true }),
    atMs: integer('at_ms').notNull(),
    uid: integer('uid').notNull(),
    gid: integer('gid').notNull(),
    pid: integer('pid').notNull(),
    actor: text('actor').notNull(),
    role: text('role'),
    socket: text('socket', { enum: ['admin', 'monitor', 'console'] }).notNull(),
    operation: text('operation').notNull(),
    arguments: text('arguments', { mode: 'json' }).$type<Record<string, unknown>>().notNull(),
    /** `ok`, a fault code or `interrupted`; null while it runs. */
    result: text('result'),
    endedAtMs: integer('ended_at_ms'),
    /** Nothing was done; such rows have a bound of their own. */
    refused: integer('refused', { mode: 'boolean' }).notNull(),
    times: integer('times').notNull(),
  },
  table => [
    index('audit_refused').on(table.refused, table.seq),
    index('audit_actor').on(table.actor, table.seq),
    index('audit_at').on(table.atMs),
  ],
)

export type AuditRow = typeof audit.$inferSelect
