// Files that commands write. Effects: writes the named file.

import { lstatSync } from 'node:fs'
import { messageOf, systemErrorCode } from '../base/fault.ts'
import { writeFileAtomic } from '../linux/files.ts'
import { inputFault } from './input-file.ts'

/** Writes `--out`. Replaces regular files only: the rename would put a file in place of a device. */
export function writeOutput(path: string, bytes: Uint8Array): void {
  const refuse = (reason: string) => inputFault({ path, param: 'out' }, reason, 'name a file that can be written')
  try {
    const existing = lstatSync(path, { throwIfNoEntry: false })
    if (existing !== undefined && !existing.isFile()) throw new Error('it exists and is not a regular file')
    writeFileAtomic(path, bytes, { mode: 0o644 })
  } catch (error) {
    throw refuse(systemErrorCode(error) === 'ENOENT' ? 'there is no such directory' : messageOf(error))
  }
}

/** For a file that must not replace another, such as a key. InputFault. */
export function refuseExisting(path: string): void {
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return
  throw inputFault({ path, param: 'file' }, 'it exists', 'name a file that does not exist yet')
}
