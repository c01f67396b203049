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

/** A reader or a crash sees old content or new. The temporary file is always `PATH.tmp`. Fault internal. */
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

/** Waits until renames in this directory are on disk. */
export function syncDirectory(path: string): void {
  sync(path, fsConstants.O_RDONLY | fsConstants.O_DIRECTORY)
}

/** Waits until the bytes of a file that somebody else wrote are on disk. */
export function syncFile(path: string): void {
  sync(path, fsConstants.O_RDONLY)
}

function sync(path: string, flags: number): void {
  const fd = openSync(path, flags)
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

/** Makes the directory with its parents; sets mode and owner also if it exists. Fault internal. */
export function ensureDir(path: string, { mode, owner }: { readonly mode: number; readonly owner?: Owner }): void {
  try {
    mkdirSync(path, { recursive: true, mode })
    // By descriptor, so that the checked directory is the changed one.
    const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = fsConstants
    const fd = openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
    try {
      // Owner first: chown could clear mode bits.
      if (owner) fchownSync(fd, owner.uid, owner.gid)
      fchmodSync(fd, mode)
    } finally {
      closeSync(fd)
    }
  } catch (error) {
    throw wrapFault(error, `make directory ${path}`)
  }
}

/** Extra flags for files where others may have put something: no links, no wait for the other end of a FIFO. */
export const guardedFlags = fsConstants.O_NOFOLLOW | fsConstants.O_NONBLOCK

/** For files opened with `guardedFlags`. Fault internal unless it is a regular file with a single name. */
export function checkRegular(found: { isFile: () => boolean; readonly nlink: number }, path: string): void {
  if (!found.isFile()) throw new Fault('internal', `${path} is no regular file`)
  if (found.nlink > 1) throw new Fault('internal', `${path} is a hard link to a file that has another name`)
}

/**
 * Equal for an unchanged file: device, inode, size, times of the last write and change. Two writes of one size within a
 * tick of the file system's clock look alike; so do writes to the block device below.
 */
export function fileIdentity({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join(' ')
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

/** Removes a file or directory of ours, if any, synchronously. Does not follow symbolic links. Fault internal. */
export function removeTree(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true })
  } catch (error) {
    throw wrapFault(error, `remove ${path}`)
  }
}

type DiskSpace = { readonly freeBytes: number; readonly totalBytes: number }

/** For the file system of `path`; `free` is for users other than root. Fault internal. */
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
