// Looks for damage in a database file (sqlite.org/pragma.html#pragma_quick_check). Effects: reads the database.
//
// SQLite has no checksums: a page that is no page of its tree any more is found, a changed byte within a text is not.

import type { Database } from 'bun:sqlite'
import { messageOf } from '../base/fault.ts'
import { storageCodeOf } from '../base/storage-failure.ts'

export type QuickCheck = {
  /** The first damage in SQLite's words; null if none was found. */
  readonly problem: string | null
  /** Tables that were left out because the time was over. */
  readonly unchecked: readonly string[]
}

/** About 0.8 GB/s where the file is cached, so this bound is for disks that hang and files of many gigabytes. */
const quickCheckMsMax = 10_000

/** The usage tables grow with requests and not with VMs: as far as time allows, they are checked after the others. */
const largestTable = 'usage'

/** Table by table, since a statement cannot be interrupted: no further one begins once the time is over. */
export function quickCheck(sqlite: Database, { msMax = quickCheckMsMax } = {}): QuickCheck {
  const endMs = performance.now() + msMax
  const tables: string[] = []
  const damage = damageOf('list of tables', () => {
    tables.push('sqlite_schema', ...tablesOf(sqlite))
    return null
  })
  if (damage !== null) return { problem: damage, unchecked: [] }
  for (const [index, table] of tables.entries()) {
    if (performance.now() >= endMs) return { problem: null, unchecked: tables.slice(index) }
    const problem = damageOf(`table ${table}`, () => checkTable(sqlite, table))
    if (problem !== null) return { problem, unchecked: [] }
  }
  return { problem: null, unchecked: [] }
}

/** Returns the finding of `check`, or the damage that stopped SQLite. Null if there is none. Throws other errors. */
function damageOf(where: string, check: () => string | null): string | null {
  try {
    const found = check()
    return found === null ? null : `${where}: ${found}`
  } catch (error) {
    if (storageCodeOf(error) !== 'store.corrupt') throw error
    return `${where}: ${messageOf(error)}`
  }
}

function tablesOf(sqlite: Database): string[] {
  const sql = `SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name = '${largestTable}', name`
  return sqlite
    .query<{ name: string }, []>(sql)
    .all()
    .map(({ name }) => name)
}

/** The first finding; null if there is none. */
function checkTable(sqlite: Database, table: string): string | null {
  const sql = `PRAGMA quick_check('${table.replaceAll("'", "''")}')`
  const [first] = sqlite.query<{ quick_check: string }, []>(sql).all()
  return first === undefined || first.quick_check === 'ok' ? null : first.quick_check.trim()
}
