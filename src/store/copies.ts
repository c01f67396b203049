// Copies of the database from before each migration, beside it: the way back to an older executable. Effects: files
// beside the database.

import type { Database } from 'bun:sqlite'
import { existsSync, readdirSync, renameSync, rmSync, statfsSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { Fault } from '../base/fault.ts'
import { syncDirectory, syncFile } from '../linux/files.ts'

export type DatabaseCopy = { readonly path: string; readonly schema: number }

/**
 * Each may be as large as the database.
 * No share: copies of the whole database; the oldest is deleted.
 */
const copiesMax = 3
/** For the migration itself, which may rewrite a table. */
const roomFactor = 2

/**
 * Copies the database `sqlite` of `path`, which has this schema, before it is migrated, and removes the oldest copies.
 * Killed anywhere, the next start does it again. Fault host.disk_full: no room for the copy and the migration.
 */
export function copyBeforeMigration(sqlite: Database, path: string, schema: number): void {
  checkRoom(sqlite, path)
  const target = copyPath(path, schema)
  const partial = `${target}.partial`
  rmSync(partial, { force: true })
  sqlite.run('VACUUM INTO ?', [partial])
  syncFile(partial)
  renameSync(partial, target)
  for (const { path: old } of copiesOf(path).slice(copiesMax)) rmSync(old, { force: true })
  syncDirectory(dirname(path))
}

/** The newest schema first. */
export function copiesOf(path: string): DatabaseCopy[] {
  const directory = dirname(path)
  if (!existsSync(directory)) return []
  const start = `${basename(path)}.schema-`
  return readdirSync(directory)
    .filter(name => name.startsWith(start) && /^[1-9]\d{0,5}$/.test(name.slice(start.length)))
    .map(name => ({ path: join(directory, name), schema: Number(name.slice(start.length)) }))
    .toSorted((a, b) => b.schema - a.schema)
}

function copyPath(path: string, schema: number): string {
  return `${path}.schema-${schema}`
}

function checkRoom(sqlite: Database, path: string): void {
  const pragma = (name: string) => Number(Object.values(sqlite.query(`PRAGMA ${name}`).get() ?? {})[0] ?? 0)
  const neededBytes = pragma('page_count') * pragma('page_size') * roomFactor
  const { bavail, bsize } = statfsSync(dirname(path))
  if (bavail * bsize >= neededBytes) return
  const [free, needed] = [bavail * bsize, neededBytes].map(bytes => Math.ceil(bytes / 1_048_576))
  const detail = `the upgrade of ${path} and the copy from before it take ${needed} MiB, and ${free} are free`
  throw new Fault('host.disk_full', `${detail}; nothing was changed`)
}
