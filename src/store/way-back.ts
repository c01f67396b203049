// Replaces the database by a copy from before a migration. Effects: the database and files beside it.

import { Database } from 'bun:sqlite'
import { copyFileSync, existsSync, linkSync, renameSync, rmSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { Fault } from '../base/fault.ts'
import { syncDirectory, syncFile } from '../linux/files.ts'
import { copiesOf, type DatabaseCopy } from './copies.ts'
import { MIGRATIONS, schemaVersionOf } from './db.ts'
import { inspectDatabase } from './inspect.ts'

export type WayBack = {
  readonly copy: DatabaseCopy
  /** When the copy was made: what was recorded since is in `setAside` alone. */
  readonly madeAtMs: number
  /** The database that was replaced; null if there was none. */
  readonly setAside: string | null
  /** Number of events and commands that were kept from it; null if they cannot be read. */
  readonly kept: number | null
}

/**
 * Replaces the database by the newest copy that this executable can open. The caller holds the lock of the state
 * directory. Killed anywhere, either the one or the other is there, whole. Faults: not_found (no copy), conflict (the
 * database is not newer), store.corrupt (the copy is damaged).
 */
export function goBack(path: string): WayBack {
  const newest = schemaVersionOf(MIGRATIONS)
  const copy = copiesOf(path).find(({ schema }) => schema <= newest)
  if (copy === undefined) throw new Fault('not_found', `there is no copy of ${path} with schema ${newest} or older`)
  const { problem, schema } = inspectDatabase(copy.path)
  if (problem !== null) throw new Fault('store.corrupt', `the copy ${copy.path} is damaged: ${problem}`)
  const present = existsSync(path) ? inspectDatabase(path) : null
  if (present !== null && present.problem === null && present.schema <= newest)
    throw new Fault('conflict', `database ${path} has schema ${present.schema}, which this executable opens as it is`)
  const setAside = present === null ? null : putAside(path, present.schema)
  let kept: number | null = 0
  putInPlace(path, copy.path, partial => {
    if (setAside !== null) kept = keepEvents(partial, setAside)
  })
  return { copy: { ...copy, schema }, madeAtMs: statSync(copy.path).mtimeMs, setAside, kept }
}

/**
 * Replaces a closed database by this copy. The former file goes, its log first: SQLite would read that into the copy.
 * Killed anywhere, the same call again ends the work. Fault store.corrupt: the copy is damaged.
 */
export function replaceDatabase(path: string, copy: string): void {
  const { problem } = inspectDatabase(copy)
  if (problem !== null) throw new Fault('store.corrupt', `the copy ${copy} is damaged: ${problem}`)
  removeLog(path)
  syncDirectory(dirname(path))
  putInPlace(path, copy)
}

const EVENT_TABLES = [
  { name: 'events', key: 'id' },
  { name: 'audit', key: 'seq' },
] as const

/**
 * Adds the journal and the record of commands of the newer database to a copy, by the columns that both have, so that
 * a downgrade hides nothing that was done. Null if they cannot be read: the way back does not depend on them.
 */
function keepEvents(path: string, newer: string): number | null {
  const sqlite = new Database(path, { readwrite: true, strict: true })
  try {
    // One file without a log beside it, because it is renamed.
    sqlite.run('PRAGMA journal_mode = DELETE')
    sqlite.run('ATTACH DATABASE ? AS newer', [newer])
    const columnsOf = (schema: 'main' | 'newer', table: string) =>
      sqlite
        .query<{ name: string }, [string, string]>('SELECT name FROM pragma_table_info(?, ?)')
        .all(table, schema)
        .map(({ name }) => name)
    return sqlite.transaction(() => {
      let count = 0
      for (const { name, key } of EVENT_TABLES) {
        const known = new Set(columnsOf('newer', name))
        const columns = columnsOf('main', name).filter(column => known.has(column))
        if (!columns.includes(key)) continue
        const list = columns.join(', ')
        count += sqlite.run(
          `INSERT OR IGNORE INTO main.${name} (${list}) SELECT ${list} FROM newer.${name}
           WHERE ${key} > (SELECT coalesce(max(${key}), 0) FROM main.${name})`,
        ).changes
      }
      return count
    })()
  } catch {
    return null
  } finally {
    sqlite.close()
  }
}

function putInPlace(path: string, copy: string, prepare: (partial: string) => void = () => {}): void {
  const partial = `${path}.partial`
  // The journal of a run that was killed would be read into the new file.
  for (const path of [partial, `${partial}-journal`]) rmSync(path, { force: true })
  copyFileSync(copy, partial)
  prepare(partial)
  syncFile(partial)
  renameSync(partial, path)
  syncDirectory(dirname(path))
}

function removeLog(path: string): void {
  for (const suffix of ['-wal', '-shm']) rmSync(`${path}${suffix}`, { force: true })
}

/** A second name for the file, and no log beside the first: the rename over it is then all that is left to do. */
function putAside(path: string, schema: number): string {
  const sqlite = new Database(path, { readwrite: true })
  try {
    const result = sqlite.query<{ busy: number }, []>('PRAGMA wal_checkpoint(TRUNCATE)').get()
    if (result?.busy !== 0) throw new Fault('store.busy', `another program holds the database ${path}`)
  } finally {
    sqlite.close()
  }
  const aside = `${path}.set-aside-${schema}`
  rmSync(aside, { force: true })
  linkSync(path, aside)
  removeLog(path)
  return aside
}
