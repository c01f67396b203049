// Small files and directories. Effects: the file system, synchronously: these files are small and few.

import {
  type BigIntStats,
  closeSync,
  fchmodSync,
  fchownSync,
  constants as fsConstants,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  unlinkSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { Fault, systemErrorCode, wrapFault } from '../base/fault.ts'

export type Owner = { readonly uid: number; readonly gid: number }

/** A reader sees the whole old content or the whole new one, after a crash too. The temporary file is always `PATH.tmp`, so that crashes leave at most one. Fault internal. */
export function writeFileAtomic(
  path: string,
  content: string | Uint8Array,
  { mode, owner }: { readonly mode: number; readonly owner?: Owner },
): void {
  const temporary = `${path}.tmp`
  try {
    rmSync(temporary, { force: true })
    const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = fsConstants
    const fd = openSync(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode)
    try {
      // Before the content: nobody else may read it in between.
      if (owner) fchownSync(fd, owner.uid, owner.gid)
      fchmodSync(fd, mode) // open(2) subtracts the umask
      writeAll(fd, Buffer.from(content))
      fsyncSync(fd)
    } finally {
      closeSync(fd)
    }
    renameSync(temporary, path)
    syncDirectory(dirname(path))
  } catch (error) {
    rmSync(temporary, { force: true })
    throw wrapFault(error, `write ${path}`)
  }
}

function writeAll(fd: number, bytes: Uint8Array): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at)
}

/** Waits until what was renamed in it, or into it, is on disk. */
export function syncDirectory(path: string): void {
  const fd = openSync(path, fsConstants.O_RDONLY | fsConstants.O_DIRECTORY)
  try {
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

/** The text, or null when there is no such file. Fault internal. */
export function readTextOrNull(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return null
    throw wrapFault(error, `read ${path}`)
  }
}

/** Makes the directory, parents too, and gives it this mode and owner whether it was there or not. Fault internal, also when it is no directory. */
export function ensureDir(path: string, { mode, owner }: { readonly mode: number; readonly owner?: Owner }): void {
  try {
    mkdirSync(path, { recursive: true, mode })
    // By descriptor: what is checked is what is changed.
    const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = fsConstants
    const fd = openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
    try {
      // First the owner: an earlier one could undo the mode.
      if (owner) fchownSync(fd, owner.uid, owner.gid)
      fchmodSync(fd, mode)
    } finally {
      closeSync(fd)
    }
  } catch (error) {
    throw wrapFault(error, `make directory ${path}`)
  }
}

/** Added to the flags of whatever is opened where others may have put something: no links, no wait for the other end of a FIFO. */
export const guardedFlags = fsConstants.O_NOFOLLOW | fsConstants.O_NONBLOCK

/** Of something that was opened with `guardedFlags`. Fault internal unless it is a regular file with no second name somewhere else. */
export function checkRegular(found: { isFile: () => boolean; readonly nlink: number }, path: string): void {
  if (!found.isFile()) throw new Fault('internal', `${path} is no regular file`)
  if (found.nlink > 1) throw new Fault('internal', `${path} is a hard link to a file that has another name`)
}

/**
 * The same for a file that has not changed: device, inode, size, and times of the last write and the last change. Two writes within one tick of
 * the file system's clock that keep the size look alike; so does what is written to the block device below.
 */
export function fileIdentity({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join(' ')
}

/** Opens a regular file and nothing else, never waiting; the caller closes the descriptor. A missing one is ENOENT in the cause. Fault internal. */
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

/** Removes a file or a whole directory of ours, synchronously. No effect if already removed. Does not follow symbolic links. Fault internal. */
export function removeTree(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true })
  } catch (error) {
    throw wrapFault(error, `remove ${path}`)
  }
}

type DiskSpace = { readonly freeBytes: number; readonly totalBytes: number }

/** Of the file system that holds `path`; free for others than root. Fault internal. */
export function diskSpace(path: string): DiskSpace {
  try {
    const { bavail, blocks, bsize } = statfsSync(path)
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize }
  } catch (error) {
    throw wrapFault(error, `disk space of ${path}`)
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

/** Empties a regular file that is larger than `bytesMax`; refuses anything else. No effect if there is none. Fault internal. */
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
