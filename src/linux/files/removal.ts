// Removes files and directories. Effects: the file system.

import { rmSync, unlinkSync } from 'node:fs'
import { systemErrorCode, wrapFault } from '../../base/fault.ts'

/** Removes a file or directory of ours, if any, synchronously. Does not follow symbolic links. Fault internal. */
export function removeTree(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true })
  } catch (error) {
    throw wrapFault(error, `remove ${path}`)
  }
}

/** Removes a socket or a file. No effect if already removed. Fault internal. */
export function removeFile(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if (systemErrorCode(error) !== 'ENOENT') throw wrapFault(error, `remove ${path}`)
  }
}
