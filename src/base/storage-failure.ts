// Failures of the storage below database and files, by SQLite's result codes (sqlite.org/rescode.html) and errno(3).
// Pure.

import { Fault, systemErrorCode } from './fault.ts'

export type StorageCode = 'store.busy' | 'store.unwritable' | 'store.corrupt'

/** For any error or its cause; null if it is another failure. */
export function storageCodeOf(error: unknown): StorageCode | null {
  let at = error
  for (let depth = 0; depth < depthMax && at instanceof Error; depth += 1) {
    // A more specific code is kept.
    if (at instanceof Fault && at.code !== 'internal' && !isStorageCode(at.code)) return null
    const code = at instanceof Fault ? at.code : (systemErrorCode(at) ?? '')
    for (const [known, pattern] of CODES) if (code === known || pattern.test(code)) return known
    at = at.cause
  }
  return null
}

const depthMax = 8

function isStorageCode(code: string): boolean {
  return CODES.some(([known]) => known === code)
}

const CODES: readonly (readonly [StorageCode, RegExp])[] = [
  ['store.busy', /^SQLITE_(BUSY|LOCKED)/],
  // A file system that is full, fails, or was made read-only after it had failed.
  ['store.unwritable', /^(SQLITE_(FULL|IOERR|READONLY)|(ENOSPC|EDQUOT|EROFS)$)/],
  ['store.corrupt', /^SQLITE_(CORRUPT|NOTADB)/],
]
