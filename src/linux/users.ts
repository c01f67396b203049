// Processes by the user they run as. Effects: reads /proc, signals processes.
//
// A hostile process may end its first thread, so that it looks like a zombie while others go on, and lie in its command
// line. It cannot change its user.

import { closeSync, readdirSync } from 'node:fs'
import { constants } from 'node:os'
import { type Clock, systemClock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { pidfdOpen, pidfdSendSignal } from './libc/pidfd.ts'
import { errnoName } from './libc.ts'
import { readProc } from './stat.ts'

/** Living processes by each of their user ids (real, effective, saved, of the file system). One pass over /proc. */
export function processesByUid(): Map<number, number[]> {
  const byUid = new Map<number, number[]>()
  for (const name of readdirSync('/proc')) {
    const pid = Number(name)
    if (!Number.isInteger(pid)) continue
    for (const uid of uidsOf(pid)) byUid.set(uid, [...(byUid.get(uid) ?? []), pid])
  }
  return byUid
}

/** Kills every process of this user and waits. Faults: host.command_timeout, host.unsupported (no pidfd). */
export async function endProcessesOf(uid: number, timeoutMs: number, clock: Clock = systemClock): Promise<void> {
  const deadlineMs = clock.monotonicMs() + timeoutMs
  for (;;) {
    const pids = processesByUid().get(uid) ?? []
    if (pids.length === 0) return
    if (clock.monotonicMs() >= deadlineMs) {
      throw new Fault('host.command_timeout', `processes of uid ${uid} do not end: ${pids.slice(0, 10).join(', ')}`)
    }
    for (const pid of pids) kill(pid, uid)
    await clock.sleep(pollMs)
  }
}

const pollMs = 20

function kill(pid: number, uid: number): void {
  const opened = pidfdOpen(pid)
  if (!opened.ok) {
    refuseUnlessGone(opened.errno, 'pidfd_open')
    return
  }
  try {
    // After the pidfd is open: it now stands for the process that is checked.
    if (!uidsOf(pid).has(uid)) return
    const sent = pidfdSendSignal(opened.value, constants.signals.SIGKILL)
    if (!sent.ok) refuseUnlessGone(sent.errno, 'pidfd_send_signal')
  } finally {
    closeSync(opened.value)
  }
}

function refuseUnlessGone(errno: number, call: string): void {
  if (errno !== constants.errno.ESRCH) throw new Fault('host.unsupported', `${call}: ${errnoName(errno)}`)
}

/** Empty when no thread of it runs. */
function uidsOf(pid: number): Set<number> {
  const status = readProc(pid, 'status') ?? ''
  const uids = /^Uid:\s+([0-9\t ]+)$/m.exec(status)?.[1]?.trim().split(/\s+/).map(Number) ?? []
  return new Set(hasEnded(status) && !hasLivingThread(pid) ? [] : uids)
}

/** proc_pid_status(5): Z is a zombie, X is dead. */
function hasEnded(status: string): boolean {
  return /^State:\s+[ZX]/m.test(status)
}

function hasLivingThread(pid: number): boolean {
  return threadsOf(pid).some(tid => {
    const status = readProc(pid, `task/${tid}/status`)
    return status !== null && !hasEnded(status)
  })
}

function threadsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`)
  } catch {
    return []
  }
}
