// SQLite in WAL mode: opening, pragmas, numbered migrations. Effects: one database file.

import { Database, type SQLQueryBindings, type Statement } from 'bun:sqlite'
import { drizzle } from 'drizzle-orm/bun-sqlite'
import type { BaseSQLiteDatabase } from 'drizzle-orm/sqlite-core'
import { assert } from '../base/assert.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import { newUuid } from '../base/ids.ts'
import { initial } from './migrations/0001-initial.ts'
import { inference } from './migrations/0002-inference.ts'

/** A database or a transaction in it. Every query takes one first. */
export type Db = BaseSQLiteDatabase<'sync', void, Record<string, never>>

/** In order; the position (from 1) is the schema version that `PRAGMA user_version` holds. */
export const MIGRATIONS: readonly string[] = [initial, inference]

const busyTimeoutMs = 5_000

export type Store = {
  readonly db: Db
  /** Drawn when the database was made; every row that a host reconciles carries it. */
  readonly hostId: string
  /** Runs `work` in one immediate transaction: all of it or nothing. Synchronous, so no other request comes between. */
  readonly transact: <T>(work: (tx: Db) => T) => T
  readonly close: () => void
}

/**
 * Opens the database at `path` (`:memory:` for tests) and brings it to the newest schema.
 * Faults: `store.newer` when a newer executable wrote it, `store.corrupt` when it is no sound database.
 */
export function openStore(path: string, migrations: readonly string[] = MIGRATIONS): Store {
  let sqlite: Database
  try {
    sqlite = new Database(path, { create: true, strict: true })
    sqlite.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`)
    sqlite.run('PRAGMA journal_mode = WAL')
    // WAL with FULL: an accepted create survives a power cut, not only a crash of ours.
    sqlite.run('PRAGMA synchronous = FULL')
    sqlite.run('PRAGMA foreign_keys = ON')
  } catch (error) {
    throw wrapFault(error, `open database ${path}`, 'store.corrupt')
  }
  try {
    migrate(sqlite, path, migrations)
    const db = drizzle({ client: sqlite })
    return {
      db,
      hostId: hostIdOf(sqlite),
      transact: work => db.transaction(tx => work(tx), { behavior: 'immediate' }),
      close: () => sqlite.close(),
    }
  } catch (error) {
    sqlite.close()
    throw error instanceof Fault ? error : wrapFault(error, `open database ${path}`, 'store.corrupt')
  }
}

/**
 * A statement past drizzle, on the same connection: for the few that every request of the gateway pays for, where drizzle costs as much
 * as SQLite itself. `db` is the store's own; within its transactions the statement is part of them.
 */
export function prepareRaw<Row>(db: Db, sql: string): Statement<Row, SQLQueryBindings[]> {
  const sqlite: unknown = Reflect.get(db, '$client')
  assert(sqlite instanceof Database, 'a raw statement is prepared on the store itself, not within a transaction')
  return sqlite.prepare<Row, SQLQueryBindings[]>(sql)
}

function migrate(sqlite: Database, path: string, migrations: readonly string[]): void {
  const version = sqlite.query<{ user_version: number }, []>('PRAGMA user_version').get()?.user_version ?? 0
  if (version > migrations.length) {
    throw new Fault(
      'store.newer',
      `database ${path} has schema ${version}, this executable knows up to ${migrations.length}; nothing was changed`,
    )
  }
  for (const [index, sql] of migrations.entries()) {
    if (index < version) continue
    sqlite.transaction(() => {
      sqlite.run(sql)
      sqlite.run(`PRAGMA user_version = ${index + 1}`)
    })()
  }
}

function hostIdOf(sqlite: Database): string {
  sqlite.run("INSERT OR IGNORE INTO meta (name, value) VALUES ('host_id', ?)", [newUuid()])
  const row = sqlite.query<{ value: string }, []>("SELECT value FROM meta WHERE name = 'host_id'").get()
  if (row === null) throw new Fault('store.corrupt', 'the database has no host id')
  return row.value
}
