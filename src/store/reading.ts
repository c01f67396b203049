// Reads a database on a connection of its own that changes nothing, beside a running daemon too. Effects: reads the
// file; rolls back what a process left half written that was killed.

import { Database } from 'bun:sqlite'
import { systemErrorCode } from '../base/fault.ts'

type Mode = { readonly readonly: true; readonly strict: true } | { readonly readwrite: true; readonly create: false }

/** Calls `read`; again where the first call met a transaction that a killed process left open. */
export function readDatabase<T>(path: string, busyTimeoutMs: number, read: (sqlite: Database) => T): T {
  const reading = () => {
    using sqlite = opened(path, { readonly: true, strict: true }, busyTimeoutMs)
    return read(sqlite)
  }
  try {
    return reading()
  } catch (error) {
    if (systemErrorCode(error) !== 'SQLITE_READONLY_ROLLBACK') throw error
    // A copy that was put back has no write-ahead log until its first start. A connection that may write rolls back.
    using writer = opened(path, { readwrite: true, create: false }, busyTimeoutMs)
    writer.query('PRAGMA user_version').get()
    return reading()
  }
}

function opened(path: string, mode: Mode, busyTimeoutMs: number): Database {
  const sqlite = new Database(path, mode)
  sqlite.run(`PRAGMA busy_timeout = ${busyTimeoutMs}`)
  return sqlite
}
