// Small files and directories. Effects: the file system, synchronously: these files are small and few.

import {
  type BigIntStats,
  closeSync,
  fchmodSync,
  fchownSync,
  constants as fsConstants,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { systemErrorCode, wrapFault } from '../base/fault.ts'

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
      // Before the content, so that other users cannot read it in between.
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

/** Waits until the bytes of a file that another program wrote are on disk. */
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

/**
 * Equal for an unchanged file: device, inode, size, times of the last write and change. Two writes of one size within a
 * tick of the file system's clock look alike; so do writes to the block device below.
 */
export function fileIdentity({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join(' ')
}
