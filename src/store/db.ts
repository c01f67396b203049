// SQLite in WAL mode: opening, damage, pragmas, migrations. Effects: one database file.

import { Database, type SQLQueryBindings, type Statement } from 'bun:sqlite'
import { statSync } from 'node:fs'
import { drizzle } from 'drizzle-orm/bun-sqlite'
import type { BaseSQLiteDatabase } from 'drizzle-orm/sqlite-core'
import { assert } from '../base/assert.ts'
import { type Clock, systemClock } from '../base/clock.ts'
import { Fault, systemErrorCode, wrapFault } from '../base/fault.ts'
import { newUuid } from '../base/ids.ts'
import { storageCodeOf } from '../base/storage-failure.ts'
import { copiesOf, copyBeforeMigration } from './copies.ts'
import { noticeDamage } from './damage.ts'
import { schemaOf } from './inspect.ts'
import { buildFetch } from './migrations/0022-build-fetch.ts'
import { auditAndDeletion } from './migrations/0023-audit.ts'
import { usageLabels } from './migrations/0024-usage-labels.ts'
import { usageCachedTokens } from './migrations/0025-usage-cached-tokens.ts'
import { transparencyLog } from './migrations/0026-log.ts'
import { vmGpus } from './migrations/0027-vm-gpus.ts'
import { consolePasskeys } from './migrations/0028-console.ts'
import { fleetReplica, sumsMark, usageGenerations } from './migrations/0029-fleet.ts'
import { attempts } from './migrations/0030-attempts.ts'
import { usageHosts } from './migrations/0031-usage-hosts.ts'
import { buildHosts } from './migrations/0032-build-hosts.ts'
import { copyProgress } from './migrations/0033-copy-progress.ts'
import { recordCounts } from './migrations/0034-record-counts.ts'
import { usageSums } from './migrations/0035-usage-sums.ts'
import { clientMadeKeys } from './migrations/0036-client-made-keys.ts'
import { shortBudgets } from './migrations/0037-short-budgets.ts'
import { buildNix } from './migrations/0038-build-nix.ts'
import { buildOptions } from './migrations/0039-build-options.ts'
import { buildWaivers } from './migrations/0040-build-waivers.ts'
import { egressPolicy } from './migrations/0041-egress-policy.ts'
import { namesQuotasHistory } from './migrations/0042-names-quotas-history.ts'
import { initial } from './migrations/initial.ts'
import { keepPrepared } from './prepared.ts'
import { quickCheck } from './quick-check.ts'

type Sqlite = BaseSQLiteDatabase<'sync', void, Record<string, never>>

/** The two rooms of the store: what organizations own, and what this host owns. */
export type DatabaseName = 'directory' | 'ledger'

declare const roomName: unique symbol

/**
 * A handle on the tables of one room: the database or a transaction in it. Every query takes it first. The type alone
 * keeps a transaction of one room from the other room's queries.
 */
type Db<Name extends DatabaseName = DatabaseName> = Omit<Sqlite, 'transaction'> & {
  readonly [roomName]: Name
  readonly transaction: <T>(work: (tx: Db<Name>) => T) => T
}

export type DirectoryDb = Db<'directory'>
export type LedgerDb = Db<'ledger'>

/** No join, foreign key or transaction spans two: a fleet keeps its directory elsewhere than a host its ledger. */
type DatabaseStore<Name extends DatabaseName> = {
  readonly db: Db<Name>
  /** Runs `work` in an immediate transaction: all of it or nothing. Synchronous, so no other request comes between. */
  readonly transact: <T>(work: (tx: Db<Name>) => T) => T
}

/** This host's own rows and its copy of others', without what concerns other hosts. */
export type LocalDirectory = DatabaseStore<'directory'>

/** A host, as a change of the directory finds it. */
export type DirectoryHost = {
  readonly hasLease: boolean
  readonly isDraining: boolean
  /** Whether other hosts can reach it. */
  readonly answersHosts: boolean
  /** True once its silence was so long that its instances and builds were given up. */
  readonly isLost: boolean
}

export type Placement =
  | { readonly kind: 'placed'; readonly hostId: string }
  /** `reason`: the condition that no host was left for. */
  | { readonly kind: 'refused'; readonly reason: string }

/** `except`: the host that an instance is taken from. */
export type PlacementQuery = { readonly platform: string; readonly except?: string }

/** The time and the hosts that a change works with. */
type ChangeContext = {
  /** When the change began. */
  readonly nowMs: number
  readonly hosts: {
    /** Null if the directory does not have the host. */
    readonly find: (hostId: string) => DirectoryHost | null
    /** Chooses the host of an instance. */
    readonly place: (query: PlacementQuery) => Placement
  }
}

/** The transaction of a change, with the hosts as they are at its commit. */
export type DirectoryTx = DirectoryDb & ChangeContext

export type DirectoryStore = DatabaseStore<'directory'> & {
  /**
   * A change that an owner or the operator requests: all of it or nothing, and durable once it resolves. On a single
   * host it is `transact`, done when the call returns. In a fleet the work runs on the current state of all hosts.
   */
  readonly change: <T>(work: (tx: DirectoryTx) => T) => Promise<T>
  /**
   * Runs `work` on everything that any host acknowledged before the call; without the fleet's database, on the rows
   * that are here. Checks `caller` again if another host's changes arrived; null if nothing needs the check.
   */
  readonly read: <T>(caller: DirectoryCaller | null, work: (db: DirectoryDb) => T | Promise<T>) => Promise<T>
  /**
   * Runs `work`, and once more if it throws `unauthenticated` and another host has changed something since: that host
   * may have made the key. `fleet.unavailable` if that cannot be known. `work` must not have changed anything by then.
   */
  readonly retryUnknownKey: <T>(work: () => T | Promise<T>) => Promise<T>
  /**
   * Brings samples of other hosts into the rows here, of an organization or of all (null). Never rejects: without the
   * fleet's database, and on a single host, the rows stay as they are.
   */
  readonly refreshSamples: (
    of: 'instance_egress' | 'key_uses' | 'gateway_key_uses',
    organizationId: string | null,
  ) => Promise<void>
  /** Throws Fault `fleet.unavailable` until the first copy of a fleet's directory is complete. */
  readonly admit: () => void
}

export type DirectoryCaller = {
  /** Throws a Fault with the reason why the caller may not read any more. */
  readonly assertAllowed: (db: DirectoryDb) => void
}
export type LedgerStore = DatabaseStore<'ledger'>

/** Both rooms; on a single host one file holds them. */
export type Store = {
  readonly directory: DirectoryStore
  readonly ledger: LedgerStore
  /** Drawn with the database; every row that a host reconciles carries it. */
  readonly hostId: string
  /** Tables that the check at the start had no time for. */
  readonly unchecked: readonly string[]
  /** Returns the first damage that a statement has found since; null if there is none. */
  readonly damage: () => string | null
  readonly close: () => void
}

/** Statements that bring a database to schema `to`, the version that `PRAGMA user_version` holds. */
type Migration = { readonly to: number; readonly sql: string }

type Migrations = {
  /** Makes a new database. */
  readonly initial: Migration
  /** Each upgrades a database of the schema before it, without a gap. Databases older than that are refused. */
  readonly upgrades: readonly [Migration, ...Migration[]]
}

export const MIGRATIONS: Migrations = {
  initial,
  upgrades: [
    buildFetch,
    auditAndDeletion,
    usageLabels,
    usageCachedTokens,
    transparencyLog,
    vmGpus,
    consolePasskeys,
    fleetReplica,
    attempts,
    usageHosts,
    buildHosts,
    copyProgress,
    recordCounts,
    usageSums,
    clientMadeKeys,
    shortBudgets,
    buildNix,
    buildOptions,
    buildWaivers,
    egressPolicy,
    namesQuotasHistory,
    usageGenerations,
    sumsMark,
  ],
}

/** The newest schema. */
export function schemaVersionOf({ initial, upgrades }: Migrations): number {
  return upgrades.at(-1)?.to ?? initial.to
}

export type OpenOptions = {
  readonly migrations?: Migrations
  /** Files that only an appliance with records has. A new database beside them would hide that the records are lost. */
  readonly leftovers?: readonly string[]
  /** Times of changes of the directory. */
  readonly clock?: Pick<Clock, 'nowMs'>
}

/**
 * A waiting statement blocks the event loop; backups and look-ups of others take a few milliseconds. Longer than the
 * ledger's thread holds the lock on a disk that is slow at times: its commit would hold this connection up as long.
 */
const busyTimeoutMs = 1_000

/**
 * Opens the database at `path` (`:memory:` for tests), looks for damage and brings it to the newest schema. Faults:
 * `store.newer` (the schema is newer than this executable), `store.older` (too old to upgrade), `store.busy` and
 * `store.unwritable` (no write now), `store.corrupt`, `store.missing` (empty, beside what earlier records left).
 */
export function openStore(
  path: string,
  { migrations = MIGRATIONS, leftovers = [], clock = systemClock }: OpenOptions = {},
): Store {
  if (leftovers.length > 0 && sizeOf(path) === 0) throw missing(path, leftovers)
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
    const { problem, unchecked } = quickCheck(sqlite)
    if (problem !== null) throw new Fault('store.corrupt', `database ${path} is damaged: ${problem}`)
    if (leftovers.length > 0 && schemaOf(sqlite) === 0) throw missing(path, leftovers)
    migrate(sqlite, path, migrations)
    sqlite.run('PRAGMA foreign_keys = ON')
    const damage = noticeDamage(sqlite)
    keepPrepared(sqlite)
    const hostId = hostIdOf(sqlite)
    return {
      directory: openDirectory(sqlite, hostId, clock),
      ledger: openDatabase<'ledger'>(sqlite),
      hostId,
      unchecked,
      damage,
      close: () => {
        emptyLog(sqlite)
        sqlite.close()
      },
    }
  } catch (error) {
    sqlite.close()
    throw error instanceof Fault ? error : openFault(error, path)
  }
}

/** The lock of a thread that is no longer awaited. */
const besideTimeoutMs = 5_000

/**
 * A further connection to the database of an open store, for a thread of its own. Close it before the store, so that
 * the file alone holds every row.
 */
export function openBeside(path: string): Pick<Store, 'close'> & { readonly directory: LocalDirectory } {
  const sqlite = new Database(path, { create: false, readwrite: true, strict: true })
  sqlite.run(`PRAGMA busy_timeout = ${besideTimeoutMs}`)
  sqlite.run('PRAGMA synchronous = FULL')
  sqlite.run('PRAGMA foreign_keys = ON')
  keepPrepared(sqlite)
  return { directory: openDatabase<'directory'>(sqlite), close: () => sqlite.close() }
}

/**
 * Statements that were not finalized keep a closed connection alive, and with it the log. After this the file alone
 * holds every row. Best effort: the next start reads the log as well.
 */
function emptyLog(sqlite: Database): void {
  try {
    sqlite.run('PRAGMA wal_checkpoint(TRUNCATE)')
  } catch {
    // A full disk, or damage that has been reported by then.
  }
}

/** 0 also when there is none. */
function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}

function missing(path: string, leftovers: readonly string[]): Fault {
  const beside = leftovers.join(', ')
  return new Fault('store.missing', `${path} has no records, and beside it are keys of an appliance: ${beside}`)
}

function openFault(error: unknown, path: string): Fault {
  const isElsewhere = systemErrorCode(error)?.startsWith('SQLITE_CANTOPEN') === true
  const code = storageCodeOf(error) ?? (isElsewhere ? 'store.unwritable' : 'store.corrupt')
  return wrapFault(error, `open database ${path}`, code)
}

/** The directory of a single host. */
function openDirectory(client: Database, hostId: string, clock: Pick<Clock, 'nowMs'>): DirectoryStore {
  const alone = openDatabase<'directory'>(client)
  const host: DirectoryHost = { hasLease: true, isDraining: false, answersHosts: false, isLost: false }
  const hosts: ChangeContext['hosts'] = {
    find: id => (id === hostId ? host : null),
    place: ({ except }) =>
      except === hostId ? { kind: 'refused', reason: 'there is no other host' } : { kind: 'placed', hostId },
  }
  return {
    ...alone,
    change: async work => alone.transact(tx => work(toChange(tx, { nowMs: clock.nowMs(), hosts }))),
    read: async (_caller, work) => await work(alone.db),
    retryUnknownKey: async work => await work(),
    refreshSamples: async () => {},
    admit: () => {},
  }
}

/** Drizzle makes a new object for each transaction, so this one may carry more. */
export function toChange(tx: DirectoryDb, context: ChangeContext): DirectoryTx {
  return Object.assign(tx, context)
}

function openDatabase<Name extends DatabaseName>(client: Database): DatabaseStore<Name> {
  const sqlite: Sqlite = drizzle({ client })
  return {
    db: asRoom<Name>(sqlite),
    transact: work => {
      assert(!client.inTransaction, 'no transaction within another, of the same room or not')
      return sqlite.transaction(tx => work(asRoom<Name>(tx)), { behavior: 'immediate' })
    },
  }
}

/** Drizzle has no rooms: only this function gives a handle its room. */
function asRoom<Name extends DatabaseName>(db: Sqlite): Db<Name> {
  return db as unknown as Db<Name>
}

/**
 * Builds a query of drizzle once for each database, for queries of every request and every change, where building takes
 * longer than SQLite does. Within a transaction it is part of it. `build` uses placeholders for what differs.
 */
export function builtOnce<Room extends Db, Query extends object>(build: (db: Room) => Query): (db: Room) => Query {
  const queries = new WeakMap<object, Query>()
  return db => {
    // A database and its transactions have one session.
    const session: unknown = Reflect.get(db, 'session')
    assert(typeof session === 'object' && session !== null, 'a handle of drizzle has its session')
    const known = queries.get(session)
    if (known !== undefined) return known
    const query = build(db)
    queries.set(session, query)
    return query
  }
}

/**
 * A statement without drizzle, on the same connection, for statements of every gateway request, where drizzle costs as
 * much as SQLite itself. `db` is the store's own; within its transactions the statement is part of them.
 */
export function prepareRaw<Row>(db: Db, sql: string): Statement<Row, SQLQueryBindings[]> {
  const sqlite: unknown = Reflect.get(db, '$client')
  assert(sqlite instanceof Database, 'a raw statement is prepared on the store itself, not within a transaction')
  return sqlite.prepare<Row, SQLQueryBindings[]>(sql)
}

/**
 * A new database is built in one transaction: a process that is killed meanwhile leaves an empty database, and not one
 * that the next start takes for an older one and copies. An upgrade commits each step, so the log holds one step at a
 * time.
 */
function migrate(sqlite: Database, path: string, migrations: Migrations): void {
  // Dropping a table deletes the rows that refer to it; the references are checked after each step instead.
  sqlite.run('PRAGMA foreign_keys = OFF')
  const version = schemaOf(sqlite)
  const steps = stepsFrom(version, path, migrations)
  if (version > 0 && steps.length > 0) copyBeforeMigration(sqlite, path, version)
  for (const together of version === 0 ? [steps] : steps.map(step => [step])) {
    sqlite.transaction(() => {
      for (const step of together) applyStep(sqlite, step)
    })()
  }
}

function applyStep(sqlite: Database, { sql, to }: Migration): void {
  sqlite.run(sql)
  const [broken] = sqlite.query<{ table: string }, []>('PRAGMA foreign_key_check').all()
  if (broken)
    throw new Fault('store.corrupt', `migration ${to}: a row of ${broken.table} refers to a row that is missing`)
  sqlite.run(`PRAGMA user_version = ${to}`)
}

function stepsFrom(version: number, path: string, migrations: Migrations): readonly Migration[] {
  const { initial, upgrades } = migrations
  const [oldest, newest] = [upgrades[0].to - 1, schemaVersionOf(migrations)]
  if (version === 0) return [initial, ...upgrades.filter(({ to }) => to > initial.to)]
  if (version > newest) {
    throw new Fault(
      'store.newer',
      `database ${path} has schema ${version}, this executable supports up to ${newest}; nothing was changed${wayBack(path, newest)}`,
    )
  }
  if (version < oldest) {
    throw new Fault(
      'store.older',
      `database ${path} has schema ${version}, this executable upgrades from ${oldest}; nothing was changed`,
    )
  }
  return upgrades.filter(({ to }) => to > version)
}

/** Names the copy that this executable could open. */
function wayBack(path: string, newest: number): string {
  const copy = copiesOf(path).find(({ schema }) => schema <= newest)
  if (copy === undefined) return ''
  return `; the copy from before the upgrade is ${copy.path}: \`strongroom downgrade\` puts it back, without what was recorded since`
}

function hostIdOf(sqlite: Database): string {
  sqlite.run("INSERT OR IGNORE INTO meta (name, value) VALUES ('host_id', ?)", [newUuid()])
  const row = sqlite.query<{ value: string }, []>("SELECT value FROM meta WHERE name = 'host_id'").get()
  if (row === null) throw new Fault('store.corrupt', 'the database has no host id')
  return row.value
}
