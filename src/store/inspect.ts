// Looks at a database without changing it, beside a running daemon too. Effects: those of reading.ts.

import type { Database } from 'bun:sqlite'
import { wrapFault } from '../base/fault.ts'
import { storageCodeOf } from '../base/storage-failure.ts'
import { type QuickCheck, quickCheck } from './quick-check.ts'
import { readDatabase } from './reading.ts'

export type Inspected = QuickCheck & { readonly schema: number }

/** Damage is a result. Faults: `store.busy`, `store.unwritable`, internal. */
export function inspectDatabase(path: string): Inspected {
  try {
    return readDatabase(path, busyTimeoutMs, sqlite => {
      const checked = quickCheck(sqlite)
      return { ...checked, schema: checked.problem === null ? schemaOf(sqlite) : 0 }
    })
  } catch (error) {
    if (storageCodeOf(error) === 'store.corrupt') {
      return { problem: error instanceof Error ? error.message : String(error), unchecked: [], schema: 0 }
    }
    throw wrapFault(error, `open database ${path}`, storageCodeOf(error) ?? 'internal')
  }
}

const busyTimeoutMs = 2_000

/** The version that `PRAGMA user_version` holds; 0 for an empty database. */
export function schemaOf(sqlite: Database): number {
  return sqlite.query<{ user_version: number }, []>('PRAGMA user_version').get()?.user_version ?? 0
}
