// SQLite in WAL mode: opening, pragmas, numbered migrations. Effects: one database file.

import { Database, type SQLQueryBindings, type Statement } from 'bun:sqlite'
import { drizzle } from 'drizzle-orm/bun-sqlite'
import type { BaseSQLiteDatabase } from 'drizzle-orm/sqlite-core'
import { assert } from '../base/assert.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import { newUuid } from '../base/ids.ts'
import { storageCodeOf } from '../base/storage-failure.ts'
import { initial } from './migrations/0001-initial.ts'
import { inference } from './migrations/0002-inference.ts'
import { rooms } from './migrations/0003-rooms.ts'
import { tokensSource } from './migrations/0004-tokens-source.ts'
import { rest } from './migrations/0005-rest.ts'
import { uids } from './migrations/0006-uids.ts'
import { attestedClaim } from './migrations/0007-attested-claim.ts'
import { launches } from './migrations/0008-launches.ts'
import { pool } from './migrations/0009-pool.ts'
import { scratch } from './migrations/0010-scratch.ts'
import { buildVms } from './migrations/0011-build-vms.ts'
import { tpm } from './migrations/0012-tpm.ts'
import { builds } from './migrations/0013-builds.ts'
import { gatewayVms } from './migrations/0014-gateway-vms.ts'
import { gateways } from './migrations/0015-gateways.ts'
import { egressLimits } from './migrations/0016-egress-limits.ts'
import { ipv6 } from './migrations/0017-ipv6.ts'
import { usageMonths } from './migrations/0018-usage-months.ts'
import { keyRules } from './migrations/0019-key-rules.ts'
import { budgets } from './migrations/0020-budgets.ts'
import { usageDays } from './migrations/0021-usage-days.ts'
import { buildFetch } from './migrations/0022-build-fetch.ts'
import { schema } from './migrations/schema.ts'

type Sqlite = BaseSQLiteDatabase<'sync', void, Record<string, never>>

/** The two rooms of the store: what organizations own, and what this host owns. */
export type RoomName = 'directory' | 'ledger'

declare const roomName: unique symbol

/**
 * The database, or a transaction in it, for the tables of one room. Every query takes one first. The room is in the type alone:
 * it keeps a transaction of one room from the other's queries.
 */
export type Db<Name extends RoomName = RoomName> = Omit<Sqlite, 'transaction'> & {
  readonly [roomName]: Name
  readonly transaction: <T>(work: (tx: Db<Name>) => T) => T
}

export type DirectoryDb = Db<'directory'>
export type LedgerDb = Db<'ledger'>

/** One room. No join, foreign key or transaction spans two: a fleet keeps its directory elsewhere than a host its ledger. */
export type RoomStore<Name extends RoomName> = {
  readonly db: Db<Name>
  /** Runs `work` in one immediate transaction: all of it or nothing. Synchronous, so no other request comes between. */
  readonly transact: <T>(work: (tx: Db<Name>) => T) => T
}

export type DirectoryStore = RoomStore<'directory'>
export type LedgerStore = RoomStore<'ledger'>

/** Both rooms; on a single host one file holds them. */
export type Store = {
  readonly directory: DirectoryStore
  readonly ledger: LedgerStore
  /** Drawn when the database was made; every row that a host reconciles carries it. */
  readonly hostId: string
  readonly close: () => void
}

/** In order; the position (from 1) is the schema version that `PRAGMA user_version` holds. */
export const MIGRATIONS: readonly string[] = [
  initial,
  inference,
  rooms,
  tokensSource,
  rest,
  uids,
  attestedClaim,
  launches,
  pool,
  scratch,
  buildVms,
  tpm,
  builds,
  gatewayVms,
  gateways,
  egressLimits,
  ipv6,
  usageMonths,
  keyRules,
  budgets,
  usageDays,
  buildFetch,
]

/** Each statement that waits holds the event loop: backups and look-ups of others take a few milliseconds. */
const busyTimeoutMs = 500

/**
 * Opens the database at `path` (`:memory:` for tests) and brings it to the newest schema.
 * Faults: `store.newer` when a newer executable wrote it, `store.busy` and `store.unwritable` when it cannot be written now, `store.corrupt` when it
 * is no sound database.
 */
export function openStore(path: string, migrations: readonly string[] = MIGRATIONS): Store {
  let sqlite: Database
  try {
    sqlite = new Database(path, { create: true, strict: true })
    sqlite.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`)
    sqlite.run('PRAGMA journal_mode = WAL')
    // WAL with FULL: an accepted create survives a power cut, not only a crash of ours.
    sqlite.run('PRAGMA synchronous = FULL')
  } catch (error) {
    throw openFault(error, path)
  }
  try {
    migrate(sqlite, path, migrations)
    sqlite.run('PRAGMA foreign_keys = ON')
    return {
      directory: openRoom<'directory'>(sqlite),
      ledger: openRoom<'ledger'>(sqlite),
      hostId: hostIdOf(sqlite),
      close: () => sqlite.close(),
    }
  } catch (error) {
    sqlite.close()
    throw error instanceof Fault ? error : openFault(error, path)
  }
}

function openFault(error: unknown, path: string): Fault {
  return wrapFault(error, `open database ${path}`, storageCodeOf(error) ?? 'store.corrupt')
}

function openRoom<Name extends RoomName>(client: Database): RoomStore<Name> {
  const sqlite: Sqlite = drizzle({ client })
  return {
    db: asRoom<Name>(sqlite),
    transact: work => {
      assert(!client.inTransaction, 'no transaction within another, of the same room or not')
      return sqlite.transaction(tx => work(asRoom<Name>(tx)), { behavior: 'immediate' })
    },
  }
}

/** Drizzle knows of no rooms: a handle is given its room here and nowhere else. */
function asRoom<Name extends RoomName>(db: Sqlite): Db<Name> {
  return db as unknown as Db<Name>
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

/** Foreign keys are off: a migration that drops a table to make it anew would delete what refers to it. They are checked at its end instead. */
function migrate(sqlite: Database, path: string, migrations: readonly string[]): void {
  sqlite.run('PRAGMA foreign_keys = OFF')
  const version = sqlite.query<{ user_version: number }, []>('PRAGMA user_version').get()?.user_version ?? 0
  if (version > migrations.length) {
    throw new Fault(
      'store.newer',
      `database ${path} has schema ${version}, this executable knows up to ${migrations.length}; nothing was changed`,
    )
  }
  for (const { sql, to } of stepsFrom(version, migrations)) {
    sqlite.transaction(() => {
      sqlite.run(sql)
      const [broken] = sqlite.query<{ table: string }, []>('PRAGMA foreign_key_check').all()
      if (broken)
        throw new Fault('store.corrupt', `migration ${to}: a row of ${broken.table} refers to a row that is missing`)
      sqlite.run(`PRAGMA user_version = ${to}`)
    })()
  }
}

/** An older database takes each migration by itself; a new one takes what they leave, in one step. */
function stepsFrom(version: number, migrations: readonly string[]): { readonly sql: string; readonly to: number }[] {
  if (version === 0 && migrations === MIGRATIONS) return [{ sql: schema, to: migrations.length }]
  return migrations.slice(version).map((sql, index) => ({ sql, to: version + index + 1 }))
}

function hostIdOf(sqlite: Database): string {
  sqlite.run("INSERT OR IGNORE INTO meta (name, value) VALUES ('host_id', ?)", [newUuid()])
  const row = sqlite.query<{ value: string }, []>("SELECT value FROM meta WHERE name = 'host_id'").get()
  if (row === null) throw new Fault('store.corrupt', 'the database has no host id')
  return row.value
}
