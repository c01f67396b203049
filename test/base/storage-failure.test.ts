// Which failures of SQLite and of the system count as storage failures.

import { expect, test } from 'bun:test'
import { Fault, wrapFault } from '../../src/base/fault.ts'
import { storageCodeOf } from '../../src/base/storage-failure.ts'

const sqlite = (code: string) => Object.assign(new Error('of SQLite'), { code })

// Goal: a database that cannot be written now is distinct from a bug, however deep its failure lies in the error.
test('by the result codes of SQLite', () => {
  const CODES = {
    SQLITE_BUSY: 'store.busy',
    SQLITE_BUSY_SNAPSHOT: 'store.busy',
    SQLITE_LOCKED: 'store.busy',
    SQLITE_FULL: 'store.unwritable',
    SQLITE_IOERR: 'store.unwritable',
    SQLITE_IOERR_WRITE: 'store.unwritable',
    SQLITE_READONLY: 'store.unwritable',
    SQLITE_CANTOPEN: null,
    SQLITE_CORRUPT: 'store.corrupt',
    SQLITE_CORRUPT_INDEX: 'store.corrupt',
    SQLITE_NOTADB: 'store.corrupt',
    SQLITE_CONSTRAINT_UNIQUE: null,
    SQLITE_ERROR: null,
    ENOSPC: 'store.unwritable',
    EDQUOT: 'store.unwritable',
    EROFS: 'store.unwritable',
    ENOENT: null,
    NOT_SQLITE_BUSY: null,
  } as const
  for (const [code, expected] of Object.entries(CODES)) {
    expect([code, storageCodeOf(sqlite(code))]).toEqual([code, expected])
    expect([code, storageCodeOf(wrapFault(wrapFault(sqlite(code), 'inner'), 'outer'))]).toEqual([code, expected])
  }
})

// Goal: whatever is thrown has an answer, and a code that was given on purpose stays.
test('of anything that can be thrown', () => {
  expect(storageCodeOf(new Fault('store.busy', 'held'))).toBe('store.busy')
  expect(storageCodeOf(wrapFault(sqlite('ENOSPC'), 'write a disk', 'host.disk_full'))).toBeNull()
  for (const thrown of [
    null,
    undefined,
    'SQLITE_BUSY',
    { code: 'SQLITE_BUSY' },
    new Fault('internal', 'SQLITE_BUSY'),
  ]) {
    expect(storageCodeOf(thrown)).toBeNull()
  }
  const circle = new Error('its own cause')
  circle.cause = circle
  expect(storageCodeOf(circle)).toBeNull()
})
