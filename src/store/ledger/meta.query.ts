// Single facts about this host: its id, the boot in which this database was last used. Effects: SQL.

import { eq } from 'drizzle-orm'
import { sqliteTable, text } from 'drizzle-orm/sqlite-core'
import type { LedgerDb } from '../db.ts'

const meta = sqliteTable('meta', { name: text('name').primaryKey(), value: text('value').notNull() })

export function readMeta(db: LedgerDb, name: string): string | null {
  return db.select().from(meta).where(eq(meta.name, name)).get()?.value ?? null
}

/** Sets a fact and returns what it was before, or null. */
export function swapMeta(db: LedgerDb, name: string, value: string): string | null {
  const before = readMeta(db, name)
  db.insert(meta).values({ name, value }).onConflictDoUpdate({ target: meta.name, set: { value } }).run()
  return before
}

export function removeMeta(db: LedgerDb, name: string): void {
  db.delete(meta).where(eq(meta.name, name)).run()
}
