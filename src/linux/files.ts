// Files of the state directory. Effects: the file system, synchronously: these files are small and few.

import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  constants as fsConstants,
  fsyncSync,
  ftruncateSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  truncateSync,
  unlinkSync,
  writeSync,
} from 'node:fs'
import { constants } from 'node:os'
import { dirname } from 'node:path'
import type { Clock } from '../base/clock.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import { errnoName, flock, LOCK } from './libc.ts'

export type Owner = { readonly uid: number; readonly gid: number }

/** The whole new content or the whole old one, after a crash too. The temporary name is fixed (`PATH.tmp`), so that crashes leave at most one. Fault internal. */
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
      writeAll(fd, Buffer.from(content))
      chmodSync(temporary, mode) // open(2) subtracts the umask
      if (owner) chownSync(temporary, owner.uid, owner.gid)
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

function syncDirectory(path: string): void {
  const fd = openSync(path, fsConstants.O_RDONLY | fsConstants.O_DIRECTORY)
  try {
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

/** Makes the directory, parents too, and gives it this mode and owner whether it was there or not. Fault internal, also when it is no directory. */
export function ensureDir(path: string, { mode, owner }: { readonly mode: number; readonly owner?: Owner }): void {
  try {
    mkdirSync(path, { recursive: true, mode })
    if (!lstatSync(path).isDirectory()) throw new Error('not a directory')
    chmodSync(path, mode)
    if (owner) chownSync(path, owner.uid, owner.gid)
  } catch (error) {
    throw wrapFault(error, `make directory ${path}`)
  }
}

/** Removes a file or a whole directory; nothing there is fine. Does not follow symbolic links. Fault internal. */
export function removeTree(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true })
  } catch (error) {
    throw wrapFault(error, `remove ${path}`)
  }
}

export type DiskSpace = { readonly freeBytes: number; readonly totalBytes: number }

/** Of the file system that holds `path`; free for others than root. Fault internal. */
export function diskSpace(path: string): DiskSpace {
  try {
    const { bavail, blocks, bsize } = statfsSync(path)
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize }
  } catch (error) {
    throw wrapFault(error, `disk space of ${path}`)
  }
}

export type FileLock = { readonly release: () => void } & Disposable

/** Holds the file for this process alone until released or dead; the kernel lets go by itself. Fault conflict when another process holds it. */
export function lockFile(path: string): FileLock {
  const { O_RDWR, O_CREAT, O_NOFOLLOW } = fsConstants
  let fd: number
  try {
    // Bun opens close-on-exec: a QEMU that outlives us must not inherit the lock.
    fd = openSync(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600)
  } catch (error) {
    throw wrapFault(error, `lock ${path}`)
  }
  const locked = flock(fd, LOCK.exclusive | LOCK.nonBlocking)
  if (!locked.ok) {
    const holder = readFileSync(path, 'utf8').trim()
    closeSync(fd)
    if (locked.errno !== constants.errno.EWOULDBLOCK) {
      throw new Fault('internal', `lock ${path}: ${errnoName(locked.errno)}`)
    }
    throw new Fault('conflict', `${path} is held by another strongroom (pid ${holder || 'unknown'}); stop it first`)
  }
  ftruncateSync(fd, 0)
  writeSync(fd, `${process.pid}\n`, 0)
  let held = true
  const release = () => {
    if (!held) return
    held = false
    // Unlocked, not only closed: a child in the middle of execve(2) still has its copy for a moment.
    flock(fd, LOCK.unlock)
    closeSync(fd)
  }
  return { release, [Symbol.dispose]: release }
}

const lockRetryMs = 20

/**
 * Like `lockFile`, but waits for a holder that is dead: a child that it was just starting has its copy of the lock until execve(2).
 * Fault conflict at once when the holder lives, else after `timeoutMs`.
 */
export async function lockFileOfDead(
  path: string,
  { timeoutMs, clock }: { timeoutMs: number; clock: Pick<Clock, 'monotonicMs' | 'sleep'> },
): Promise<FileLock> {
  const endMs = clock.monotonicMs() + timeoutMs
  while (true) {
    try {
      return lockFile(path)
    } catch (error) {
      const isConflict = error instanceof Fault && error.code === 'conflict'
      if (!isConflict || clock.monotonicMs() >= endMs || isHolderAlive(path)) throw error
    }
    await clock.sleep(lockRetryMs)
  }
}

function isHolderAlive(path: string): boolean {
  const pid = readFileSync(path, 'utf8').trim()
  return pid !== '' && existsSync(`/proc/${pid}`)
}

/** Removes a socket or file that may be there. Fault internal. */
export function removeFile(path: string): void {
  try {
    unlinkSync(path)
  } catch (error) {
    if (Reflect.get(Object(error), 'code') !== 'ENOENT') throw wrapFault(error, `remove ${path}`)
  }
}

/** Empties a file that has grown above `bytesMax`; none there is fine. Fault internal. */
export function truncateAbove(path: string, bytesMax: number): void {
  try {
    const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0
    if (size > bytesMax) truncateSync(path, 0)
  } catch (error) {
    throw wrapFault(error, `truncate ${path}`)
  }
}
