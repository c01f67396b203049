// The fleet's database: numbered transactions, snapshots, statements. Effects: connections to PostgreSQL.
//
// A numbered transaction takes the directory's next version at its start, and holds the lock of that counter until it
// commits, so versions have no gaps and follow the order of commits. The rows that it writes get that version in
// `changes`, from which every host copies.

import type { PoolClient, QueryResult } from 'pg'
import { present } from '../base/assert.ts'
import type { Clock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { UnavailableFault } from '../http/limited.ts'
import {
  answerSlackMs,
  type Connections,
  openConnections,
  POSTGRES_LIMITS,
  type PostgresLimits,
  type PostgresTarget,
} from './driver.ts'
import {
  ConnectionFailure,
  commitUnknownMessage,
  directoryAway,
  failureOf,
  isConflict,
  lockTimeout,
  reasonOf,
  sqlStateOf,
  TransactionNotStarted,
} from './failures.ts'

/** A parameter of a statement. Objects are sent as JSON; the type excludes undefined. */
export type SqlValue =
  | string
  | number
  | boolean
  | null
  | Date
  | Uint8Array
  | readonly string[]
  | readonly number[]
  | object

export type Row = Readonly<Record<string, unknown>>

export type StatementOptions = {
  /** Closes the connection if the response takes longer. The default is longer than the server's timeout. */
  readonly answerMs?: number
}

/** Runs statements, within a transaction or without. */
export type Sql = {
  readonly query: <ResultRow extends object = Row>(
    text: string,
    values?: readonly SqlValue[],
    options?: StatementOptions,
  ) => Promise<ResultRow[]>
}

/** A transaction that writes what hosts copy. */
export type NumberedTransaction = Sql & {
  /** The directory's version that its commit creates. */
  readonly version: number
  /** Rows of `WriteOptions.opening`. */
  readonly opened: readonly Row[]
  /**
   * Sends a statement together with the commit, in the order of the calls, which saves round trips while others wait.
   * `onRows` gets its rows once the commit has been acknowledged; not if that answer is lost.
   */
  readonly atCommit: (statement: Literal, onRows?: (rows: readonly Row[]) => void) => void
}

/** A statement whose parameters `$1` to `$9` are texts, which are inserted into it. */
export type Literal = { readonly text: string; readonly values: readonly string[] }

export type WriteOptions = {
  /** A query sent in the same round trip as the beginning of the transaction. */
  readonly opening?: () => Literal
  /** Does not wake other hosts, which find the change at their next poll, unless `work` announces it. */
  readonly isQuiet?: boolean
}

export type ReadOptions = {
  /** Timeout of each statement, instead of the default. */
  readonly statementMs?: number
}

export type PostgresView = {
  readonly isReachable: boolean
  /** Why the last statement failed; null if it did not. */
  readonly problem: string | null
  /** Time of the last change of reachability, by the wall clock. */
  readonly sinceMs: number
  /** Statements sent since the start, including those of transactions. */
  readonly statementCount: number
  readonly failureCount: number
}

export type Postgres = Sql & {
  /**
   * Runs `work` in a numbered transaction, all or nothing. `work` may run again after a conflict, so its only effects
   * are statements. Fault `fleet.unavailable`.
   */
  readonly transact: <T>(work: (tx: NumberedTransaction) => Promise<T>, options?: WriteOptions) => Promise<T>
  /** Runs `work` in a transaction without a version, for rows that no other host copies. */
  readonly transactPlain: <T>(work: (tx: Sql) => Promise<T>) => Promise<T>
  /** Runs read-only statements that see one moment. */
  readonly snapshot: <T>(work: (tx: Sql) => Promise<T>, options?: ReadOptions) => Promise<T>
  /**
   * Resolves when a synchronous standby has everything committed before. `timeline`: of the server that showed it.
   * Fault `fleet.unavailable`, also if another server has taken over, which may lack some of it.
   */
  readonly sync: (timeline: number) => Promise<void>
  readonly view: () => PostgresView
  readonly close: () => Promise<void>
}

export type PostgresDeps = {
  readonly target: PostgresTarget
  readonly limits?: Partial<PostgresLimits>
  readonly clock: Clock
  readonly log: Logger
}

/** Attempts of a transaction, after conflicts and connections that had ended while idle. */
const attemptsMax = 4

/** Prepares the database. The first statement connects. */
export async function openPostgres({ target, limits: given, clock, log }: PostgresDeps): Promise<Postgres> {
  const limits = { ...POSTGRES_LIMITS, ...given }
  const connections = await openConnections(target, limits)
  const health = createHealth(clock, log)
  const session: Session = { connections, limits, health, clock }
  return {
    query: <ResultRow extends object = Row>(text: string, values?: readonly SqlValue[], options?: StatementOptions) =>
      onConnection(session, sql => sql.query<ResultRow>(text, values, options)).catch(rethrow),
    transact: (work, { isQuiet = false, opening } = {}) =>
      transaction(session, {
        begin: `BEGIN; SELECT version, xid::text, timeline, began FROM begin_change(${!isQuiet})`,
        ...(opening === undefined ? {} : { opening }),
        work: ({ query, atCommit }, [begun = [], opened = []]) =>
          work({ query, atCommit, opened, version: (begun[0] as TransactionStart & { version: number }).version }),
      }),
    transactPlain: work =>
      transaction(session, {
        begin: `BEGIN; SELECT pg_current_xact_id()::text AS xid, ${TIMELINE} AS timeline`,
        work: ({ query }) => work({ query }),
      }),
    snapshot: (work, { statementMs } = {}) =>
      transaction(session, {
        begin: beginSnapshot(statementMs),
        work: ({ query }) => work({ query }),
        ...(statementMs === undefined ? {} : { statementMs }),
      }),
    sync: timeline => onConnection(session, sql => syncOn(sql, timeline)).catch(rethrow),
    view: health.view,
    close: connections.close,
  }
}

type Session = {
  readonly connections: Connections
  readonly limits: PostgresLimits
  readonly health: Health
  readonly clock: Clock
}

type Transaction<T> = {
  /** Text of statements. The first that reads anything returns the `TransactionStart`. */
  readonly begin: string
  readonly opening?: () => Literal
  /** Runs the transaction. `found`: the rows of each statement after BEGIN, those of `opening` last. */
  readonly work: (sql: ConnectionSql, found: readonly Row[][]) => Promise<T>
  readonly statementMs?: number
}

/** Timeline of the server's log, which changes with each failover. Same as timeline(), which a new database lacks. */
const TIMELINE = `CASE WHEN pg_is_in_recovery() THEN 0
  ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END`

/**
 * Waits until a synchronous standby has everything committed so far. A server that restarts after a crash shows commits
 * that the standby lacks (PostgreSQL, 27.2.8).
 */
const SYNC = `SELECT pg_logical_emit_message(true, 'strongroom', ''), ${TIMELINE} AS timeline`

async function syncOn(sql: Sql, timeline: number): Promise<void> {
  const [found] = await sql.query<{ timeline: number }>(SYNC)
  if (found?.timeline !== timeline) throw directoryAway(new Error('another server has taken over'))
}

/** Identifies a transaction uniquely, so that its outcome can be looked up. */
type TransactionStart = {
  readonly xid: string
  readonly timeline: number
  /** Only for numbered transactions, whose rows in `changes` have both. */
  readonly version?: number
  readonly began?: string
}

const LINES = 'EXISTS (SELECT 1 FROM changes WHERE version = $2 AND at = $3::timestamptz)'

function beginSnapshot(statementMs: number | undefined): string {
  const begin = 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY'
  return statementMs === undefined ? begin : `${begin}; SET LOCAL statement_timeout = ${Math.ceil(statementMs)}`
}

async function transaction<T>(session: Session, plan: Transaction<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await onConnection(session, sql => attemptOnce(session, sql, plan), plan.statementMs)
    } catch (error) {
      const isStuck = sqlStateOf(error) === lockTimeout && (await endStuckChanges(session))
      if (!isStuck && !isConflict(error) && !(error instanceof TransactionNotStarted)) return rethrow(error)
      if (attempt === attemptsMax) throw directoryAway(error)
    }
  }
}

/** Ends hosts' transactions that have held the counter for too long. Returns whether there were any. Never rejects. */
async function endStuckChanges(session: Session): Promise<boolean> {
  const end = 'SELECT end_stuck_changes() > 0 AS is'
  return await onConnection(session, async sql => (await sql.query(end))[0]?.is === true).catch(() => false)
}

async function attemptOnce<T>(
  session: Session,
  sql: ConnectionSql,
  { begin, opening, work }: Transaction<T>,
): Promise<T> {
  let began: TransactionStart | undefined
  let result: T
  try {
    const isReused = sql.isReused()
    const [, ...found] = await sql.queryAll(begin, opening?.()).catch((error: unknown) => {
      throw sql.isBroken() && isReused ? new TransactionNotStarted('the connection had ended', { cause: error }) : error
    })
    began = found[0]?.[0] as TransactionStart | undefined
    result = await within(session.limits.transactionMs, sql, work(sql, found))
  } catch (error) {
    if (!sql.isBroken()) await sql.query('ROLLBACK').catch(() => {})
    throw error
  }
  try {
    await sql.commit()
  } catch (error) {
    if (!sql.isBroken()) await sql.query('ROLLBACK').catch(() => {})
    if (!sql.isBroken() || began === undefined) throw error
    if (!(await wasCommitted(session, began, error))) throw directoryAway(error)
  }
  return result
}

/** Closes the connection of a transaction that takes too long, because others wait for the counter that it locks. */
async function within<T>(ms: number, sql: ConnectionSql, work: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => {
    sql.break()
    late.reject(directoryAway(new Error(`a transaction took longer than ${ms} ms`)))
  }, ms)
  try {
    return await Promise.race([work, late.promise])
  } finally {
    clearTimeout(timer)
  }
}

/** Time for looking up, over another connection, the outcome of a commit whose connection ended. */
const [commitLookUpMs, commitLookUpEveryMs] = [4_000, 200]

/**
 * Returns whether a transaction was committed. Fault `fleet.unavailable` if that is unknown: the database stays
 * unreachable, or another server took over, on which the transaction number may mean another transaction.
 */
async function wasCommitted(session: Session, begun: TransactionStart, cause: unknown): Promise<boolean> {
  const { xid, timeline, version = null, began = null } = begun
  const { clock } = session
  const untilMs = clock.monotonicMs() + commitLookUpMs
  do {
    const look = `SELECT pg_xact_status($1::xid8) AS status, ${TIMELINE} AS timeline, ${version === null ? 'true' : LINES} AS is_own`
    type CommitRow = { readonly status: string | null; readonly timeline: number; readonly is_own: boolean }
    const [found] = await onConnection(session, sql =>
      sql.query<CommitRow>(look, version === null ? [xid] : [xid, version, began]),
    ).catch((): CommitRow[] => [])
    if (found !== undefined && found.timeline !== timeline) break
    // After a crash, the server reuses transaction numbers that it had not persisted.
    if (found?.status === 'committed') {
      if (!found.is_own) return false
      const isKept = await onConnection(session, sql => syncOn(sql, timeline)).then(
        () => true,
        () => false,
      )
      if (isKept) return true
      break
    }
    if (found?.status === 'aborted') return false
    await clock.sleep(commitLookUpEveryMs)
  } while (clock.monotonicMs() < untilMs)
  throw directoryAway(cause, commitUnknownMessage)
}

function rethrow(error: unknown): never {
  throw failureOf(error)
}

/** Wraps a connection's failure. Returns the server's errors unchanged. */
function asConnectionFailure(error: unknown): unknown {
  return sqlStateOf(error) === null ? new ConnectionFailure(messageOf(error), { cause: error }) : error
}

type ConnectionSql = Sql & {
  /** Returns the rows of each statement of a text, and of one more statement. */
  readonly queryAll: (text: string, last?: Literal) => Promise<Row[][]>
  readonly atCommit: NumberedTransaction['atCommit']
  readonly commit: () => Promise<void>
  readonly isReused: () => boolean
  /** Whether the connection failed, or was closed by this host. */
  readonly isBroken: () => boolean
  readonly break: () => void
}

const used = new WeakSet<PoolClient>()

/** Runs `work` on a connection of the pool. Throws the driver's own errors. */
async function onConnection<T>(
  { connections, limits, health }: Session,
  work: (sql: ConnectionSql) => Promise<T>,
  statementMs = limits.statementMs,
): Promise<T> {
  try {
    if (connections.waitingCount() >= limits.waitingCountMax) {
      throw directoryAway(new Error(`${limits.waitingCountMax} requests wait for a connection`))
    }
    const client = await connections.take().catch((error: unknown) => {
      throw asConnectionFailure(error)
    })
    const connection = sqlOn(client, statementMs + answerSlackMs, health)
    try {
      return await work(connection)
    } finally {
      const isBroken = connection.isBroken()
      connection.break()
      used.add(client)
      connections.giveBack(client, isBroken)
    }
  } catch (error) {
    health.failed(error)
    throw error
  }
}

function sqlOn(client: PoolClient, answerMs: number, health: Health): ConnectionSql {
  let isBroken = false
  const isReused = used.has(client)
  const last: { readonly text: string; readonly onRows: (rows: readonly Row[]) => void }[] = []
  /** Sends a text. Several statements in one text have several results. */
  const send = async (
    text: string,
    values?: readonly SqlValue[],
    options: StatementOptions = {},
  ): Promise<QueryResult[]> => {
    if (isBroken) throw directoryAway(new Error('the connection of this transaction has ended'))
    health.sent()
    try {
      const statement = {
        text,
        ...(values === undefined ? {} : { values: [...values] }),
        query_timeout: options.answerMs ?? answerMs,
      }
      const results = [await client.query(statement)].flat()
      health.answered()
      return results
    } catch (error) {
      const isFatal = ['FATAL', 'PANIC'].includes(String(Reflect.get(Object(error), 'severity')))
      if (sqlStateOf(error) === null || isFatal) isBroken = true
      throw asConnectionFailure(error)
    }
  }
  return {
    query: async <ResultRow extends object = Row>(
      text: string,
      values?: readonly SqlValue[],
      options?: StatementOptions,
    ): Promise<ResultRow[]> => lastOf(await send(text, values, options)).rows,
    queryAll: async (text, more) => {
      const results = await send(more === undefined ? text : `${text}; ${withLiterals(client, more)}`)
      return results.map(({ rows }) => rows)
    },
    atCommit: (statement, onRows = () => {}) => {
      last.push({ text: withLiterals(client, statement), onRows })
    },
    commit: async () => {
      const results = await send([...last.map(({ text }) => text), 'COMMIT'].join('; '))
      if (lastOf(results).command !== 'COMMIT') {
        throw new Fault('internal', 'rolled back: a statement of the transaction had failed')
      }
      for (const [index, { onRows }] of last.entries()) onRows(results[index]?.rows ?? [])
    },
    isReused: () => isReused,
    isBroken: () => isBroken,
    break: () => {
      isBroken = true
    },
  }
}

function lastOf(results: readonly QueryResult[]): QueryResult {
  return present(results.at(-1), 'every statement has a result')
}

function withLiterals(client: PoolClient, { text, values }: Literal): string {
  return text.replace(/\$(\d)/g, (_, number: string) =>
    client.escapeLiteral(present(values[Number(number) - 1], 'every parameter has its value')),
  )
}

type Health = {
  readonly view: () => PostgresView
  readonly sent: () => void
  readonly answered: () => void
  readonly failed: (error: unknown) => void
}

function createHealth(clock: Pick<Clock, 'nowMs'>, log: Logger): Health {
  let problem: string | null = null
  let sinceMs = clock.nowMs()
  let [statementCount, failureCount] = [0, 0]
  return {
    view: () => ({ isReachable: problem === null, problem, sinceMs, statementCount, failureCount }),
    sent: () => {
      statementCount += 1
    },
    answered: () => {
      if (problem === null) return
      log.info('the directory of the fleet answers again', { away_ms: clock.nowMs() - sinceMs })
      problem = null
      sinceMs = clock.nowMs()
    },
    failed: error => {
      if (!(failureOf(error) instanceof UnavailableFault)) return
      failureCount += 1
      if (problem === null) {
        sinceMs = clock.nowMs()
        log.warn('the directory of the fleet does not answer', { problem: reasonOf(error) })
      }
      problem = reasonOf(error)
    },
  }
}
