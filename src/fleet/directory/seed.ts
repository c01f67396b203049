// Converts a standalone host's records to a fleet's directory, and back. Effects: statements to PostgreSQL, SQL on the
// host's database, also while a daemon is running.
//
// Rows are copied in parts, each in its own transaction. Local changes are recorded from before the first part, and
// reported when the daemon starts in the fleet.

import { assert } from '../../base/assert.ts'
import { canonicalJson } from '../../base/canonical-json.ts'
import { systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { LocalDirectory } from '../../store/db.ts'
import type { NumberedTransaction, Postgres, Sql } from '../postgres.ts'
import { LocalRows, outboxKey } from '../replica/local-rows.ts'
import { Outbox } from '../replica/outbox.ts'
import type { CopyProgress, Progress } from '../replica/progress.ts'
import { endReplica, Replica, type ReplicaPosition } from '../replica/replica.ts'
import { SampleLines } from '../replica/samples.ts'
import { SumsMark } from '../replica/sums-mark.ts'
import { REPLICA_TABLES, type ReplicaTable, SAMPLE_TABLES, type WireRow } from '../replica/tables.ts'
import { fleetIdOf, newestChange, pagesOf } from './feed.ts'
import { reportAll } from './reports.ts'
import { readSamples, reportSamples } from './samples.ts'
import { whichAreGone } from './statements.ts'
import { readSums } from './sums.ts'
import { writesOf } from './write.ts'

export type SeedDeps = {
  readonly directory: LocalDirectory
  readonly hostId: string
  readonly postgres: Pick<Postgres, 'query' | 'transact' | 'transactPlain'>
  /** Called after each part. */
  readonly onProgress?: (rows: number) => void
}

const partRowCount = 500
const partDocumentCount = 32

/**
 * Copies the records of this host into an empty directory and reads every row back. Returns the number of rows. From
 * then on local changes are recorded, and the daemon reports them when it starts in the fleet. Repeating it resumes
 * after an interruption. Faults: `conflict` (the directory has records of others, or a row read back differs),
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
  let to: ReplicaPosition | null = null
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
          return { version: tx.version, ...(await positionIn(tx)) }
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
  to: ReplicaPosition | null,
): void {
  assert(to !== null, 'the last table was written')
  directory.transact(() => {
    replica.setMark(to)
    progress.end()
  })
}

/** Progress before the first row. */
const start: Progress = {
  ...{ timeline: 0, fromVersion: 0, change: '', toVersion: null, isFirst: true, isClean: true },
  ...{ table: REPLICA_TABLES[0]?.name ?? '', after: null, rowCount: 0 },
}

/**
 * Makes the last host standalone again: reports the changes, usage sums and samples that the directory lacks, and
 * compares its records with the directory row by row. Faults: `conflict` (other hosts, differences, unreported rows),
 * `fleet.unavailable`.
 */
export async function leaveDirectory({ directory, hostId, postgres }: SeedDeps): Promise<number> {
  const replica = replicaOf({ directory, hostId })
  if (replica.mark() === null) throw new Fault('conflict', 'the records of this host are no copy of a fleet’s')
  if (!replica.isSeeding()) {
    await reportRest({ directory, hostId, postgres }, replica)
    // Includes hosts that have left, and this one, which may have been restored from an older copy.
    for (const table of SAMPLE_TABLES) await readSamples({ postgres, replica }, table, null)
    await readSums({
      postgres,
      replica,
      hostId,
      mark: new SumsMark(directory.db),
      clock: systemClock,
      catchUp: async () => {},
    })
  }
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

/** Reports changes, sums and samples that were not due when the daemon stopped. Fault `fleet.unavailable`. */
async function reportRest({ directory, hostId, postgres }: SeedDeps, replica: Replica): Promise<void> {
  const outbox = new Outbox(directory, replica)
  const { signal } = new AbortController()
  const hasSums = () => new SumsMark(directory.db).read() !== null
  do await reportAll({ postgres, outbox, hostId, writing: 'report', hasSums }, signal)
  while (outbox.release(Number.MAX_SAFE_INTEGER))
  await reportSamples({ postgres, lines: new SampleLines(directory, hostId), hostId }, signal)
}

function replicaOf({ directory, hostId }: Pick<SeedDeps, 'directory' | 'hostId'>): Replica {
  const adopt = () => {
    throw new Fault('internal', 'nothing is adopted while records are copied')
  }
  return new Replica({ directory, hostId, adopt })
}

/**
 * Compares every row of both sides, except rows with a recorded local change. Returns the number of rows in the
 * directory. Fault `conflict`.
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

/** Omits samples, which the directory has in other tables, and its own columns. */
function comparable({ columns }: ReplicaTable, row: WireRow | null): string {
  if (row === null) return canonicalJson(null)
  const lasting = columns.filter(({ isSampled }) => isSampled !== true)
  return canonicalJson(Object.fromEntries(lasting.map(({ name }) => [name, row[name] ?? null])))
}

/** Throws Fault `conflict` for a local row that the directory lacks. */
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

/** Throws Fault `conflict` if there are records of others. */
async function refuseFilled(tx: NumberedTransaction): Promise<void> {
  const [row] = await tx.query<{ count: number }>('SELECT count(*) AS count FROM organizations')
  if (row?.count === 0) return
  throw new Fault('conflict', 'the directory of the fleet has organizations already: nothing was changed')
}

async function positionIn(tx: Sql): Promise<Omit<ReplicaPosition, 'version'>> {
  const [row] = await tx.query<Omit<ReplicaPosition, 'version'>>(`${newestChange.text}, timeline() AS timeline`)
  assert(row !== undefined, 'a statement without tables has one row')
  return row
}

/** Returns the key of a row as text: its values, in the order of the columns. */
function keyText(key: WireRow): string {
  return JSON.stringify(Object.entries(key).sort(([a], [b]) => (a < b ? -1 : 1)))
}
