// The user id of each VM: reserved before use, released when nothing runs under it. Effects: SQL, reads and ends
// processes.
//
// Different uids separate a VM's escaped QEMU from other VMs. A uid is not reserved while anything runs under it.

import { readdirSync } from 'node:fs'
import { type Clock, systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { identifyProcess } from '../../linux/process/running.ts'
import { listWithUuid, type ProcessIdentity } from '../../linux/process.ts'
import { readProc } from '../../linux/stat.ts'
import { endProcessesOf, processesByUid } from '../../linux/users.ts'
import type { LedgerDb } from '../../store/db.ts'
import { listResources, recordResource, resourceOf } from '../../store/ledger/resource.query.ts'
import { freeUid, type UidRange, uidCount } from '../launch.plan.ts'
import { isBeforeProgram } from './jail.plan.ts'

export type UidDeps = { readonly db: LedgerDb; readonly random: RandomBytes; readonly range: UidRange }

const endTimeoutMs = 10_000
/** How long a start waits until the parents of ended processes, or init, have reaped them. */
const reapTimeoutMs = 5_000
/** Interval of checks, each of which reads all of /proc. */
const reapPollMs = 200

/**
 * Returns the uid recorded for this VM, or a free one, which it records. No process runs under it. Faults:
 * host.unsupported (all are taken), host.command_timeout (processes of an earlier attempt do not end).
 */
export async function reserveUid(deps: UidDeps, { vmId, nowMs }: { vmId: string; nowMs: number }): Promise<number> {
  const { db, random, range } = deps
  const recorded = resourceOf(db, vmId, 'uid')
  if (recorded !== null) {
    await releaseUid(recorded.name)
    await untilReaped(Number(recorded.name))
    return Number(recorded.name)
  }
  // Runs without a pause until the uid is recorded, so that no two VMs get the same one.
  const inLedger = new Set(listResources(db, 'uid').map(row => Number(row.name)))
  const counted = countedUids()
  const [low = 0, middle = 0, high = 0] = random(3)
  // Random, so that some time passes before a uid is used again, because it may have left files in /tmp.
  const start = (low + middle * 256 + high * 65_536) % uidCount(range)
  const uid = freeUid(range, start, candidate => inLedger.has(candidate) || counted.has(candidate))
  if (uid === null) {
    throw new Fault('host.unsupported', `every uid from ${range.min} to ${range.max} is taken; raise vm.uid_max`)
  }
  recordResource(db, { vmId, kind: 'uid', name: `${uid}`, nowMs })
  return uid
}

/**
 * Returns the VM's QEMU, identified by its command line, or null. A process chooses its own command line, so it must
 * run as the VM's user, or as root before it becomes that user.
 */
export function findQemu(db: LedgerDb, vmId: string): ProcessIdentity | null {
  // The uid is recorded before the process starts.
  if (resourceOf(db, vmId, 'qemu') === null) return null
  const candidates = listWithUuid().filter(({ uuid }) => uuid === vmId)
  const uid = resourceOf(db, vmId, 'uid')
  // Started by a version without uids.
  if (uid === null) return candidates[0] ?? null
  const byUid = processesByUid()
  const own = [...(byUid.get(Number(uid.name)) ?? []), ...(byUid.get(0) ?? [])]
  const ofVm = candidates.filter(({ pid }) => own.includes(pid))
  return ofVm.find(({ pid }) => !isBeforeProgram(identifyProcess(pid)?.argv ?? [])) ?? ofVm[0] ?? null
}

/**
 * Ends every process that runs under the uid: QEMU's children, or an escaped process that outlived QEMU. Faults:
 * host.command_timeout, host.unsupported.
 */
export async function releaseUid(name: string): Promise<void> {
  await endProcessesOf(Number(name), endTimeoutMs)
}

/**
 * Returns the uids for which the kernel counts a process, zombies included: until it is reaped, a process counts for
 * the task limit of its user (RLIMIT_NPROC of setrlimit(2)), which is 4 for swtpm.
 */
function countedUids(): Set<number> {
  const statuses = readdirSync('/proc').flatMap(name =>
    /^\d+$/.test(name) ? (readProc(Number(name), 'status') ?? []) : [],
  )
  return new Set(
    statuses.flatMap(status =>
      (/^Uid:\s+([0-9\t ]+)$/m.exec(status)?.[1] ?? '').trim().split(/\s+/).filter(Boolean).map(Number),
    ),
  )
}

/**
 * Waits until the uid has no processes. Gives up after `reapTimeoutMs`: the start may work anyway, and reports the
 * reason if it does not.
 */
async function untilReaped(uid: number, clock: Clock = systemClock): Promise<void> {
  const deadlineMs = clock.monotonicMs() + reapTimeoutMs
  while (countedUids().has(uid) && clock.monotonicMs() < deadlineMs) await clock.sleep(reapPollMs)
}
