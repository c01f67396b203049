// Copies the whole directory to this host, in parts of one statement each, however long it takes. Effects: statements
// to PostgreSQL, SQL on the host's database.
//
// Each part reflects its own moment. A concurrent change has its row in `changes`: the copy applies these rows from the
// version at which it began, and is complete at the version at which it ended. It stores its progress.

import { assert } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import { systemErrorCode } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { directoryAway } from '../failures.ts'
import { checkSchema } from '../migrations.ts'
import type { Postgres, Sql } from '../postgres.ts'
import type { LocalKey, LocalRows } from '../replica/local-rows.ts'
import type { CopyProgress, Progress } from '../replica/progress.ts'
import type { AppliedChanges, Replica, ReplicaPosition } from '../replica/replica.ts'
import type { SumsMark } from '../replica/sums-mark.ts'
import { REPLICA_TABLES, type ReplicaTable, type RowChange } from '../replica/tables.ts'
import { changeUpTo, pagesOf } from './feed.ts'
import { whichAreGone } from './statements.ts'
import { sumsPosition } from './sums.ts'

export type FullCopyDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly replica: Replica
  readonly progress: CopyProgress
  readonly sums: SumsMark
  readonly local: LocalRows
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
  readonly log: Logger
  readonly onApplied: (applied: AppliedChanges) => void
  /** The directory has what this host reported: the copy is only far behind. */
  readonly isSameHistory?: boolean
}

const reportEveryMs = 5_000
/** Rows that are written in one turn of the event loop. No share: the next turn has the remaining rows. */
const turnRowCount = 250
/** Keys of local rows that are looked up in the directory together. */
const goneKeyCount = 500

/**
 * Copies the directory. Afterwards the copy is at the version at which it began, and later changes are read as usual.
 * Resumes after an interruption, unless another server took over or the changes since were trimmed. Waits until the
 * directory has every step of this executable's schema. Fault `fleet.unavailable`.
 */
export async function copyWhole(deps: FullCopyDeps): Promise<void> {
  const { postgres, replica, progress } = deps
  await checkSchema(postgres).catch(error => {
    throw directoryAway(error)
  })
  const earlier = progress.read()
  let at =
    resumedProgress(earlier, await readPosition(postgres, earlier?.fromVersion ?? null)) ?? (await beginProgress(deps))
  const reportProgress = createProgressReporter(deps)
  while (at.toVersion === null) {
    at = await copyTable(deps, at, reportProgress)
    const next = REPLICA_TABLES[indexOf(at.table) + 1]
    if (next !== undefined) at = { ...at, table: next.name, after: null }
    else {
      if (!at.isClean) await removeGone(deps)
      at = { ...at, toVersion: (await readPosition(postgres, null)).version }
    }
    const { timeline, fromVersion: version, change } = at
    replica.transact(() => {
      // No changes remain to be applied.
      if (at.toVersion === version) progress.end()
      else progress.write(at)
      if (at.toVersion !== null) replica.setMark({ version, timeline, change })
    })
  }
  reportProgress(at, true)
}

type DirectoryPosition = ReplicaPosition & { readonly trimmed: number }

/** Reads the directory's position. `change`: the newest up to a version, or of all if null. */
async function readPosition(sql: Sql, changeVersion: number | null): Promise<DirectoryPosition> {
  const [at] = await sql.query<DirectoryPosition>(
    `SELECT f.version, timeline() AS timeline, t.version AS trimmed,
       ${changeUpTo('coalesce($1::bigint, f.version)')} AS change
     FROM fleet f CROSS JOIN trimmed t`,
    [changeVersion],
  )
  assert(at !== undefined, 'a directory has its counter')
  return at
}

/** Returns the progress to resume from; null to start over. */
function resumedProgress(
  progress: Progress | null,
  { version, timeline, trimmed, change }: DirectoryPosition,
): Progress | null {
  if (progress === null || progress.toVersion !== null) return null
  const { fromVersion } = progress
  const isSame = progress.timeline === timeline && progress.change === change
  return isSame && trimmed <= fromVersion && fromVersion <= version ? progress : null
}

async function beginProgress(deps: FullCopyDeps): Promise<Progress> {
  const { postgres, replica, progress, sums, clock, log, isSameHistory = false } = deps
  const mark = replica.mark()
  const earlier = progress.read()
  const isNew = mark === null || mark.version === 0
  const isFirst = isNew || earlier?.isFirst === true
  // Another server, or a directory restored to an earlier moment, may lack what this host reported.
  if (!isFirst && !isSameHistory) await replica.reportOwn(() => clock.sleep(0))
  const read = await sumsPosition(postgres)
  const { version, timeline, change } = await readPosition(postgres, null)
  const [first] = REPLICA_TABLES
  assert(first !== undefined, 'hosts copy tables')
  log.info('the whole directory is copied', { at_version: version, from_version: mark?.version ?? 0 })
  const isClean = isNew && earlier === null && replica.isEmpty()
  const from = { timeline, fromVersion: version, change, toVersion: null, table: first.name, after: null, rowCount: 0 }
  const at = { ...from, isFirst, isClean }
  replica.transact(() => {
    progress.write(at)
    // The copy has all sums that were reported before.
    sums.write(read)
  })
  return at
}

async function copyTable(deps: FullCopyDeps, from: Progress, reportProgress: ProgressReporter): Promise<Progress> {
  const { postgres, clock } = deps
  const table = REPLICA_TABLES[indexOf(from.table)]
  assert(table !== undefined, `${from.table} is copied`)
  let at = from
  for await (const page of pagesOf(postgres, table, from.after)) {
    for (let taken = 0; taken < page.length; taken += turnRowCount) {
      if (taken > 0) await clock.sleep(0)
      at = await applyRows(deps, at, page.slice(taken, taken + turnRowCount))
      reportProgress(at)
    }
  }
  return at
}

async function applyRows(deps: FullCopyDeps, from: Progress, rows: readonly RowChange[]): Promise<Progress> {
  const { replica, progress, onApplied } = deps
  const at = { ...from, after: rows.at(-1)?.key ?? from.after, rowCount: from.rowCount + rows.length }
  const apply = () => replica.applyPart(rows, () => progress.write(at))
  let applied: AppliedChanges
  try {
    applied = apply()
  } catch (error) {
    if (systemErrorCode(error) !== 'SQLITE_CONSTRAINT_UNIQUE') throw error
    // A row of the former history has the same name.
    await removeGone(deps)
    applied = apply()
  }
  onApplied(applied)
  return at
}

/** Removes rows that the directory does not have, except those that this host has not reported yet. */
async function removeGone({ postgres, replica, local, onApplied }: FullCopyDeps): Promise<void> {
  for (const table of REPLICA_TABLES.toReversed()) {
    let rows: LocalKey[]
    for (let after: LocalKey['key'] | null = null; ; after = rows.at(-1)?.key ?? null) {
      rows = local.keys(table, after, goneKeyCount)
      if (rows.length === 0) break
      // Determine this before querying: rows reported in the meantime are in the directory.
      const asked = rows.filter(({ text }) => !(table.hostMay.includes('insert') && local.isNoted(table.name, text)))
      const gone = await postgres.query<{ i: number }>(whichAreGone(table), [
        JSON.stringify(asked.map(({ key }) => key)),
      ])
      const changes = gone.flatMap(({ i }) => {
        const row = asked[i - 1]
        return row === undefined ? [] : [{ table: table.name, key: row.key, row: null }]
      })
      if (changes.length > 0) onApplied(replica.applyPart(changes))
    }
  }
}

function indexOf(table: ReplicaTable['name']): number {
  const index = REPLICA_TABLES.findIndex(({ name }) => name === table)
  assert(index >= 0, `${table} is copied`)
  return index
}

type ProgressReporter = (at: Progress, isWhole?: boolean) => void

function createProgressReporter({ clock, log }: FullCopyDeps): ProgressReporter {
  const beganMs = clock.monotonicMs()
  let reportedMs = beganMs
  return ({ rowCount: rows, table }, isWhole = false) => {
    const nowMs = clock.monotonicMs()
    if (!isWhole && nowMs - reportedMs < reportEveryMs) return
    reportedMs = nowMs
    const took = Math.round(nowMs - beganMs)
    if (isWhole) log.info('the rows of the directory are here; changes since then follow', { rows, took_ms: took })
    else log.info('the directory is being copied', { rows, table, took_ms: took })
  }
}
