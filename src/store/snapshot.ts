// A copy of the database in one file, taken beside a running daemon (sqlite.org/lang_vacuum.html#vacuuminto). Effects:
// reads the database (reading.ts), writes the copy.

import { Fault, wrapFault } from '../base/fault.ts'
import { storageCodeOf } from '../base/storage-failure.ts'
import { schemaOf } from './inspect.ts'
import { quickCheck } from './quick-check.ts'
import { readDatabase } from './reading.ts'

export type Snapshot = { readonly schema: number; readonly hostId: string }

/**
 * Writes the copy to `target`, which must not exist. It holds every row that was committed before the call; writers go
 * on meanwhile. Faults: store.corrupt, store.missing, store.busy, store.unwritable.
 */
export function snapshotDatabase(path: string, target: string): Snapshot {
  try {
    return readDatabase(path, busyTimeoutMs, sqlite => {
      const { problem } = quickCheck(sqlite)
      if (problem !== null)
        throw new Fault('store.corrupt', `database ${path} is damaged: ${problem}; no copy was made`)
      const schema = schemaOf(sqlite)
      if (schema === 0) throw new Fault('store.missing', `database ${path} has no records`)
      sqlite.run('VACUUM INTO ?', [target])
      const row = sqlite.query<{ value: string }, []>("SELECT value FROM meta WHERE name = 'host_id'").get()
      return { schema, hostId: row?.value ?? '' }
    })
  } catch (error) {
    throw error instanceof Fault ? error : wrapFault(error, `copy database ${path}`, storageCodeOf(error) ?? 'internal')
  }
}

const busyTimeoutMs = 5_000

/** Bytes that a copy takes at most. */
export function databaseBytes(path: string): number {
  return readDatabase(path, busyTimeoutMs, sqlite => {
    const pragma = (name: string) => Number(Object.values(sqlite.query(`PRAGMA ${name}`).get() ?? {})[0] ?? 0)
    return pragma('page_count') * pragma('page_size')
  })
}
