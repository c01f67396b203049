// Reads sums of usage that hosts have reported, which are not among the directory's changes. Effects: statements to
// PostgreSQL, SQL on the host's database.

import { present } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import { sqlStateOf } from '../failures.ts'
import type { Postgres, Sql } from '../postgres.ts'
import type { Replica } from '../replica/replica.ts'
import type { SumsMark, SumsPosition } from '../replica/sums-mark.ts'
import { REPLICA_TABLES, type RowChange, rowKey, type WireRow } from '../replica/tables.ts'
import { pagesOf } from './feed.ts'

export type SumsDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly replica: Pick<Replica, 'applyPart'>
  readonly mark: SumsMark
  readonly hostId: string
  readonly clock: Pick<Clock, 'sleep'>
  /** Applies changes up to now: a sum refers to its organization. */
  readonly catchUp: () => Promise<void>
}

const SUMS = REPLICA_TABLES.filter(({ isSum }) => isSum === true)

/** No share: the next statement has the remaining rows. */
const pageRowCount = 1_000
/** No share: no host reports more in a transaction, whose sums are read together; the rest of them would be skipped. */
const pageRowCountMax = 10_000
/** Rows that are written in one turn of the event loop. No share: the next turn has the remaining rows. */
const turnRowCount = 250

/** SQLSTATE of a directory whose schema is older: undefined_column. Its sums are among the changes. */
const olderSchema = '42703'

/** SQL: where a reading is: the server's cluster and timeline, whose transactions have numbers, and what it sees. */
const POSITION = `(SELECT system_identifier FROM pg_control_system()) || ' ' || timeline() AS source,
  pg_current_snapshot()::text AS snapshot`

/**
 * Reads the sums reported since the last reading. After a failover or a restore reads all of them. Returns the number
 * of this host's newest report; null if the directory has none. Fault `fleet.unavailable`.
 */
export async function readSums(deps: SumsDeps): Promise<number | null> {
  const { mark } = deps
  const from = mark.read()
  try {
    let page = await readPage(deps, from, null, '0')
    const { source, snapshot, reported, batch } = present(page[0], 'a position has one row')
    const isSame = from !== null && from.source === source && nextNumber(snapshot) >= nextNumber(from.snapshot)
    if (!isSame)
      for (const table of SUMS) for await (const rows of pagesOf(deps.postgres, table)) await apply(deps, rows)
    for (;;) {
      await apply(deps, page.flatMap(changeOf))
      const last = page.length < pageRowCount ? null : (page.at(-1)?.reported ?? null)
      if (last === null) break
      page = await readPage(deps, from, snapshot, last)
    }
    mark.write({ source, snapshot }, { isEmpty: isSame && reported === null })
    return batch
  } catch (error) {
    if (sqlStateOf(error) !== olderSchema) throw error
    if (from !== null) mark.write(null)
    return null
  }
}

/** Returns the number that the server gives next. A lower one than before: an older copy of its disk was restored. */
function nextNumber(snapshot: string): bigint {
  return BigInt(snapshot.split(':')[1] ?? 0)
}

/** Returns the position of a reading that begins now. */
export async function sumsPosition(sql: Sql): Promise<SumsPosition> {
  const [position] = await sql.query<SumsPosition>(`SELECT ${POSITION}`)
  return present(position, 'a position has one row')
}

type SumRow = SumsPosition & {
  readonly table_name: string | null
  readonly row: WireRow | null
  readonly reported: string | null
  readonly batch: number | null
}

/**
 * `after`: the transaction before the page. `until`: the snapshot of the first page; later reports are read next time.
 * A transaction's sums are read together. A number that the server has not used yet is of a server before a restore.
 */
async function readPage(
  { postgres, hostId }: Pick<SumsDeps, 'postgres' | 'hostId'>,
  from: SumsPosition | null,
  until: string | null,
  after: string,
): Promise<SumRow[]> {
  const selectNew = ({
    name,
  }: {
    readonly name: string
  }) => `SELECT '${name}' AS table_name, to_jsonb(s) AS row, reported
    FROM ${name} s WHERE reported > $4::xid8 AND reported >= pg_snapshot_xmin($2::pg_snapshot)
      AND reported < pg_snapshot_xmax(coalesce($3::pg_snapshot, pg_current_snapshot()))
      AND NOT pg_visible_in_snapshot(reported, $2::pg_snapshot)`
  return await postgres.query<SumRow>(
    `SELECT p.source, p.snapshot, (SELECT batch FROM outboxes WHERE host_id = $5) AS batch, s.table_name, s.row, s.reported::text AS reported
     FROM (SELECT ${POSITION}) p LEFT JOIN LATERAL (
       ${SUMS.map(selectNew).join(' UNION ALL ')} ORDER BY reported FETCH FIRST ${pageRowCount} ROWS WITH TIES
     ) s ON p.source = $1 ORDER BY s.reported LIMIT ${pageRowCountMax}`,
    [from?.source ?? '', from?.snapshot ?? '1:1:', until, after, hostId],
  )
}

function changeOf({ table_name: name, row }: SumRow): RowChange[] {
  const table = SUMS.find(table => table.name === name)
  return table === undefined || row === null ? [] : [{ table: table.name, key: rowKey(table, row), row }]
}

async function apply({ replica, clock, catchUp }: SumsDeps, rows: readonly RowChange[]): Promise<void> {
  if (rows.length > 0) await catchUp()
  for (let taken = 0; taken < rows.length; taken += turnRowCount) {
    if (taken > 0) await clock.sleep(0)
    replica.applyPart(rows.slice(taken, taken + turnRowCount))
  }
}
