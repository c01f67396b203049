// The transparency log: entries, hashes of the tree above them, cosignatures.

import { blob, integer, primaryKey, sqliteTable, text } from 'drizzle-orm/sqlite-core'

export const logEntries = sqliteTable('log_entries', {
  seq: integer('seq').primaryKey(),
  entry: blob('entry', { mode: 'buffer' }).notNull(),
  /** SHA-256 of the entry as a leaf (RFC 6962 2.1). */
  leaf: blob('leaf', { mode: 'buffer' }).notNull().unique(),
  atMs: integer('at_ms').notNull(),
})

/** Roots of complete subtrees of 2^level leaves, level 1 and up. */
export const logHashes = sqliteTable(
  'log_hashes',
  {
    level: integer('level').notNull(),
    place: integer('place').notNull(),
    hash: blob('hash', { mode: 'buffer' }).notNull(),
  },
  table => [primaryKey({ columns: [table.level, table.place] })],
)

/** The newest of each witness. */
export const logCosignatures = sqliteTable('log_cosignatures', {
  witness: text('witness').primaryKey(),
  /** Size of the tree that it has cosigned. */
  size: integer('size').notNull(),
  /** A signature line of a note. */
  line: text('line').notNull(),
  /** When this host got it. */
  atMs: integer('at_ms').notNull(),
})

export type LogEntryRow = typeof logEntries.$inferSelect
export type LogCosignature = typeof logCosignatures.$inferSelect
