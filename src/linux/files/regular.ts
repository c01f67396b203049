// Files at paths that others can write to: only regular ones with a single name are opened. Effects: the file system.

import { closeSync, constants as fsConstants, fstatSync, ftruncateSync, openSync } from 'node:fs'
import { Fault, systemErrorCode, wrapFault } from '../../base/fault.ts'

/** Extra flags for files where others may have put something: no links, no wait for the other end of a FIFO. */
export const guardedFlags = fsConstants.O_NOFOLLOW | fsConstants.O_NONBLOCK

/** For files opened with `guardedFlags`. Fault internal unless it is a regular file with a single name. */
export function checkRegular(found: { isFile: () => boolean; readonly nlink: number }, path: string): void {
  if (!found.isFile()) throw new Fault('internal', `${path} is not a regular file`)
  if (found.nlink > 1) throw new Fault('internal', `${path} is a hard link to a file that has another name`)
}

/** Opens a regular file only, never waiting; the caller closes it. ENOENT is in the cause. Fault internal. */
export function openRegular(path: string, flags: number, mode = 0o600): number {
  let fd: number
  try {
    fd = openSync(path, flags | guardedFlags, mode)
  } catch (error) {
    throw wrapFault(error, `open ${path}`)
  }
  try {
    checkRegular(fstatSync(fd), path)
    return fd
  } catch (error) {
    closeSync(fd)
    throw error
  }
}

/** Empties a regular file larger than `bytesMax`, if any; refuses anything else. Fault internal. */
export function truncateAbove(path: string, bytesMax: number): void {
  let fd: number
  try {
    fd = openRegular(path, fsConstants.O_WRONLY)
  } catch (error) {
    if (error instanceof Fault && systemErrorCode(error.cause) === 'ENOENT') return
    throw error
  }
  try {
    if (fstatSync(fd).size > bytesMax) ftruncateSync(fd, 0)
  } catch (error) {
    throw wrapFault(error, `truncate ${path}`)
  } finally {
    closeSync(fd)
  }
}
