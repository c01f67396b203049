// A lock on a file, held by one process (flock(2)). Effects: the file system, synchronously.

import {
  closeSync,
  existsSync,
  constants as fsConstants,
  ftruncateSync,
  openSync,
  readFileSync,
  writeSync,
} from 'node:fs'
import { constants } from 'node:os'
import type { Clock } from '../base/clock.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import { errnoName, flock, LOCK } from './libc.ts'

export type FileLock = { readonly release: () => void } & Disposable

/** Holds the file for this process until released or dead. Fault conflict if another process holds it. */
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
 * Like `lockFile`, but waits for a dead holder's child, which has its copy of the lock until execve(2). Throws Fault
 * conflict at once if the holder lives, otherwise after `timeoutMs`.
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
