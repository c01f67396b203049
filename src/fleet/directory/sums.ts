// Reads sums of usage that hosts have reported, which are not among the directory's changes. Effects: statements to
// PostgreSQL, SQL on the host's database.

import { present } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import { sqlStateOf } from '../failures.ts'
import type { Postgres, Sql } from '../postgres.ts'
import type { Replica } from '../replica/replica.ts'
import type { SumsMark, SumsPosition } from '../replica/sums-mark.ts'
import { REPLICA_TABLES, type ReplicaTable, type RowChange, rowKey, type WireRow } from '../replica/tables.ts'
import { pagesOf } from './feed.ts'
import { whichAreGone } from './statements.ts'

export type SumsDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly replica: Pick<Replica, 'applyPart' | 'mark'>
  readonly mark: SumsMark
  readonly hostId: string
  readonly clock: Pick<Clock, 'sleep'>
  /** Applies changes up to now: a sum refers to its organization. */
  readonly catchUp: () => Promise<void>
}

type ApplyDeps = Pick<SumsDeps, 'postgres' | 'replica' | 'clock' | 'catchUp'>

const SUMS = REPLICA_TABLES.filter(({ isSum }) => isSum === true)

/** No share: the next statement has the remaining rows. */
const pageRowCount = 1_000
/** Rows that are written in one turn of the event loop. No share: the next turn has the remaining rows. */
const turnRowCount = 250

/**
 * Attempts to see rows and copy at one version. No share: after the last one a removed row may stay until the next full
 * copy.
 */
const attemptsMax = 20

/** SQLSTATE of a directory whose schema is older: undefined_column. Its sums are among the changes. */
const olderSchema = '42703'

/**
 * SQL: where a reading is: the start of a server on its timeline, which numbers transactions, and what it sees. After a
 * crash a server gives the numbers of transactions again that had not reached its disk.
 */
const POSITION = `timeline() || ' ' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint AS source,
  pg_current_snapshot()::text AS snapshot`

/**
 * Reads the sums reported since the last reading. After a start of the server, a failover or a restore reads all.
 * Returns the number of this host's newest report, 0 without one; null if the schema is older. Fault
 * `fleet.unavailable`.
 */
export async function readSums(deps: SumsDeps): Promise<number | null> {
  const { mark } = deps
  const from = mark.read()
  try {
    let page = await readPage(deps, from, null, SUMS.map(firstOf))
    const { source, snapshot, batch } = page
    const isSame = from !== null && from.source === source && nextNumber(snapshot) >= nextNumber(from.snapshot)
    if (!isSame) await readAllSums(deps)
    const isEmpty = isSame && SUMS.every(({ name }) => page[name] === null)
    for (;;) {
      await apply(
        deps,
        SUMS.flatMap(table => changesOf(table, page)),
      )
      const next = SUMS.flatMap(table => nextOf(table, page))
      if (next.length === 0) break
      page = await readPage(deps, from, snapshot, next)
    }
    mark.write({ source, snapshot }, { isEmpty })
    return batch
  } catch (error) {
    if (sqlStateOf(error) !== olderSchema) throw error
    if (from !== null) mark.write(null)
    return null
  }
}

/** Reads all sums. Fault `fleet.unavailable`. */
export async function readAllSums(deps: ApplyDeps): Promise<void> {
  for (const table of SUMS) for await (const rows of pagesOf(deps.postgres, table)) await apply(deps, rows)
}

/**
 * Returns the number that the server gives next. A lower one than before follows a crash of one of the server's
 * processes, or an older state of its machine.
 */
function nextNumber(snapshot: string): bigint {
  return BigInt(snapshot.split(':')[1] ?? 0)
}

/** Returns the position of a reading that begins now. */
export async function sumsPosition(sql: Sql): Promise<SumsPosition> {
  const [position] = await sql.query<SumsPosition>(`SELECT ${POSITION}`)
  return present(position, 'a position has one row')
}

/** The rows of each table by its name; null if there are none. */
type SumsPage = SumsPosition & { readonly batch: number } & Readonly<Record<string, SumRow[] | null>>
/** With the number of its transaction in `reported`. */
type SumRow = WireRow & { readonly reported: string }

/** Where a page of a table begins: after a transaction's number and the key of a row. */
type PageStart = { readonly table: ReplicaTable; readonly after: readonly string[] }

function firstOf(table: ReplicaTable): PageStart {
  return { table, after: ['0', ...table.key.map(() => '')] }
}

/** Returns the start of the next page; none if the page has the last rows of the table. */
function nextOf(table: ReplicaTable, page: SumsPage): PageStart[] {
  const rows = page[table.name] ?? []
  const last = rows.at(-1)
  if (last === undefined || rows.length < pageRowCount) return []
  return [{ table, after: [last.reported, ...table.key.map(name => String(last[name]))] }]
}

/**
 * `until`: the snapshot of the first page; later reports are read next time. One transaction may have written more rows
 * than a page, so pages follow one another by number and key, as the index does.
 */
async function readPage(
  { postgres, hostId }: Pick<SumsDeps, 'postgres' | 'hostId'>,
  from: SumsPosition | null,
  until: string | null,
  starts: readonly PageStart[],
): Promise<SumsPage> {
  const values = [from?.source ?? '', from?.snapshot ?? '1:1:', until, hostId]
  const parameter = (value: string) => `$${values.push(value)}`
  const rowsOf = ({ table: { name, key }, after: [number = '', ...last] }: PageStart) => {
    const order = ['reported', ...key].join(', ')
    const after = [`${parameter(number)}::xid8`, ...last.map(value => `${parameter(value)}::text`)].join(', ')
    return `(SELECT jsonb_agg(to_jsonb(s) ORDER BY ${order}) FROM (
      SELECT * FROM ${name} WHERE p.source = $1 AND (${order}) > (${after}) AND reported >= pg_snapshot_xmin($2::pg_snapshot)
        AND reported < pg_snapshot_xmax(coalesce($3::pg_snapshot, p.snapshot::pg_snapshot))
        AND NOT pg_visible_in_snapshot(reported, $2::pg_snapshot) ORDER BY ${order} LIMIT ${pageRowCount}) s) AS ${name}`
  }
  const [page] = await postgres.query<SumsPage>(
    `SELECT p.source, p.snapshot, coalesce((SELECT batch FROM outboxes WHERE host_id = $4), 0) AS batch, ${starts.map(rowsOf).join(', ')}
     FROM (SELECT ${POSITION}) p`,
    values,
  )
  return present(page, 'a position has one row')
}

function changesOf(table: ReplicaTable, page: SumsPage): RowChange[] {
  return (page[table.name] ?? []).map(row => ({ table: table.name, key: rowKey(table, row), row }))
}

async function apply(deps: ApplyDeps, rows: readonly RowChange[]): Promise<void> {
  const { replica, clock, catchUp } = deps
  if (rows.length > 0) await catchUp()
  for (let taken = 0; taken < rows.length; taken += turnRowCount) {
    if (taken > 0) await clock.sleep(0)
    replica.applyPart(await stillThere(deps, rows.slice(taken, taken + turnRowCount)))
  }
}

/**
 * Leaves out rows that the directory has removed since they were read: if the copy has applied that, nothing would
 * remove them again. A row that is removed later is so in a version that the copy does not have yet.
 */
async function stillThere({ postgres, replica }: ApplyDeps, rows: readonly RowChange[]): Promise<RowChange[]> {
  for (let attempts = 1; ; attempts += 1) {
    const version = replica.mark()?.version
    const there: RowChange[] = []
    for (const table of SUMS) {
      const ofTable = rows.filter(row => row.table === table.name)
      if (ofTable.length === 0) continue
      const keys = JSON.stringify(ofTable.map(({ key }) => key))
      const gone = new Set((await postgres.query<{ i: number }>(whichAreGone(table), [keys])).map(({ i }) => i))
      there.push(...ofTable.filter((_, index) => !gone.has(index + 1)))
    }
    if (attempts === attemptsMax || replica.mark()?.version === version) return there
  }
}
