// A single host's records become a fleet's directory, and the way back. Effects: statements to PostgreSQL, SQL on the
// host's database, beside a running daemon too.
//
// Rows go in parts, each in a transaction of its own, however many there are. Changes that are made here meanwhile are
// noted from before the first part on, and reported when the daemon starts in the fleet.

import { assert } from '../../base/assert.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { Fault } from '../../base/fault.ts'
import type { LocalDirectory } from '../../store/db.ts'
import type { NumberedTransaction, Postgres, Sql } from '../postgres.ts'
import { LocalRows, outboxKey } from '../replica/local-rows.ts'
import { Outbox } from '../replica/outbox.ts'
import type { CopyProgress, Progress } from '../replica/progress.ts'
import { endReplica, keyText, Replica } from '../replica/replica.ts'
import { REPLICA_TABLES, type ReplicaTable, type WireRow } from '../replica/tables.ts'
import { fleetIdOf, pagesOf } from './feed.ts'
import { reportAll } from './reports.ts'
import { whichAreGone } from './statements.ts'
import { writesOf } from './write.ts'

export type SeedDeps = {
  readonly directory: LocalDirectory
  readonly hostId: string
  readonly postgres: Pick<Postgres, 'query' | 'transact'>
  /** After each part. */
  readonly onProgress?: (rows: number) => void
}

const partRowCount = 500
const partDocumentCount = 32

/**
 * Copies the records of this host into an empty directory and reads every row back; returns their number. From then on
 * changes here are noted, and the daemon reports them once it starts in the fleet. Repeating it goes on where it was
 * interrupted. Faults: `conflict` (the directory has records of others, or what was read back differs),
 * `fleet.unavailable`.
 */
export async function seedDirectory({ directory, hostId, postgres, onProgress }: SeedDeps): Promise<number> {
  const replica = replicaOf({ directory, hostId })
  const isRepeated = replica.mark() !== null
  if (isRepeated && !replica.isSeeding()) return 0
  replica.begin(await fleetIdOf(postgres), { isSeeding: true })
  const { progress } = replica
  const local = new LocalRows(directory.db)
  let at = progress.read() ?? start
  let to: { readonly version: number; readonly timeline: number } | null = null
  try {
    for (const table of REPLICA_TABLES.slice(REPLICA_TABLES.findIndex(({ name }) => name === at.table))) {
      if (table.name !== at.table) at = { ...at, table: table.name, after: null }
      for (let last = false; !last; ) {
        const limit = table.name === 'instance_attestations' ? partDocumentCount : partRowCount
        const rows = local.page(table, at.after, limit)
        const isFirst = at === start && !isRepeated
        to = await postgres.transact(async tx => {
          if (isFirst) await refuseFilled(tx)
          for (const { text, values } of writesOf(rows, { writing: 'seed', hostId })) await tx.query(text, values)
          return { version: tx.version, timeline: await timelineOf(tx) }
        })
        last = rows.length < limit
        at = { ...at, after: rows.at(-1)?.key ?? at.after, rowCount: at.rowCount + rows.length }
        progress.write(at)
        onProgress?.(at.rowCount)
      }
    }
    await compare(postgres, local)
  } catch (error) {
    // Nothing was written.
    if (!isRepeated && at === start) endReplica(directory)
    throw error
  }
  finish({ directory, replica, progress }, to)
  return at.rowCount
}

function finish(
  { directory, replica, progress }: { directory: SeedDeps['directory']; replica: Replica; progress: CopyProgress },
  to: { readonly version: number; readonly timeline: number } | null,
): void {
  assert(to !== null, 'the last table was written')
  directory.transact(() => {
    replica.setMark(to)
    progress.end()
  })
}

/** Before the first row. */
const start: Progress = {
  ...{ timeline: 0, fromVersion: 0, toVersion: null, isFirst: true, isClean: true },
  ...{ table: REPLICA_TABLES[0]?.name ?? '', after: null, rowCount: 0 },
}

/**
 * The way back of the last host: sums of usage that it has still to report are reported, its records are compared with
 * the directory row by row, and are its own again. The directory stays as it is. Faults: `conflict` (other hosts,
 * differences, rows that were not reported), `fleet.unavailable`.
 */
export async function leaveDirectory({ directory, hostId, postgres }: SeedDeps): Promise<number> {
  const replica = replicaOf({ directory, hostId })
  if (replica.mark() === null) throw new Fault('conflict', 'the records of this host are no copy of a fleet’s')
  // Sums of usage that no report was due for when the daemon ended.
  if (!replica.isSeeding()) await reportSums({ directory, hostId, postgres }, replica)
  const others = await postgres.query('SELECT 1 FROM hosts WHERE id <> $1 LIMIT 1', [hostId])
  if (others.length > 0) throw new Fault('conflict', 'the fleet has other hosts: remove or forget them first')
  if (replica.unreported() > 0) {
    throw new Fault(
      'conflict',
      'this host has changes that the directory lacks: let the service report them, then stop it',
    )
  }
  const rows = await compare(postgres, new LocalRows(directory.db))
  endReplica(directory)
  return rows
}

/** Faults: `fleet.unavailable`. */
async function reportSums({ directory, hostId, postgres }: SeedDeps, replica: Replica): Promise<void> {
  const outbox = new Outbox(directory, replica)
  const { signal } = new AbortController()
  while (outbox.release(Number.MAX_SAFE_INTEGER))
    await reportAll({ postgres, outbox, hostId, writing: 'report' }, signal)
}

function replicaOf({ directory, hostId }: Pick<SeedDeps, 'directory' | 'hostId'>): Replica {
  const adopt = () => {
    throw new Fault('internal', 'nothing is adopted while records are copied')
  }
  return new Replica({ directory, hostId, adopt })
}

/**
 * Every row of either side is on the other, and the same, but for those whose change here is noted; returns the number
 * of rows there. Fault `conflict`.
 */
async function compare(sql: Sql, local: LocalRows): Promise<number> {
  let count = 0
  for (const table of REPLICA_TABLES) {
    const there = await compareThere(sql, local, table)
    count += there.count
    if (there.same < local.countUnnoted(table)) await nameMissing(sql, local, table)
  }
  return count
}

type RowComparison = { readonly count: number; readonly same: number }

async function compareThere(sql: Sql, local: LocalRows, table: ReplicaTable): Promise<RowComparison> {
  let [count, same] = [0, 0]
  for await (const page of pagesOf(sql, table)) {
    count += page.length
    for (const { key, row } of page) {
      if (local.isNoted(table.name, outboxKey(table, key))) continue
      same += 1
      if (comparable(table, local.row(table, key)) === comparable(table, row)) continue
      throw new Fault('conflict', `${table.name} ${keyText(key)} differs between this host and the directory`)
    }
  }
  return { count, same }
}

/** A change that no report is due for is no difference: the triggers note none either (`reportedEveryMs`). */
function comparable({ columns }: ReplicaTable, row: WireRow | null): string {
  const rounded = columns.flatMap(({ name, reportedEveryMs }) => {
    const value = row?.[name]
    if (reportedEveryMs === undefined || typeof value !== 'number') return []
    return [[name, Math.floor(value / reportedEveryMs)]]
  })
  return canonicalJson(row === null ? null : { ...row, ...Object.fromEntries(rounded) })
}

/** Fault `conflict`: a row here that the directory does not have. */
async function nameMissing(sql: Sql, local: LocalRows, table: ReplicaTable): Promise<void> {
  let rows = local.page(table, null, partRowCount)
  for (; rows.length > 0; rows = local.page(table, rows.at(-1)?.key ?? null, partRowCount)) {
    const asked = rows.filter(({ text }) => !local.isNoted(table.name, text))
    const gone = await sql.query<{ i: number }>(whichAreGone(table), [JSON.stringify(asked.map(({ key }) => key))])
    const missing = gone
      .map(({ i }) => asked[i - 1])
      .find(row => row !== undefined && !local.isNoted(row.table, row.text))
    if (missing === undefined) continue
    throw new Fault('conflict', `${table.name} ${keyText(missing.key)} is on this host and not in the directory`)
  }
}

/** Fault `conflict`: there are records of others. */
async function refuseFilled(tx: NumberedTransaction): Promise<void> {
  const [row] = await tx.query<{ count: number }>('SELECT count(*) AS count FROM organizations')
  if (row?.count === 0) return
  throw new Fault('conflict', 'the directory of the fleet has organizations already: nothing was changed')
}

async function timelineOf(tx: Sql): Promise<number> {
  const [row] = await tx.query<{ timeline: number }>('SELECT timeline() AS timeline')
  assert(row !== undefined, 'a function has one row')
  return row.timeline
}
