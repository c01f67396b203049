// Starts a program of a VM in its jail and finds the process that remains. Effects: processes; reads /proc.
//
// bwrap stays as the parent of the program that it started. It is killed once the program runs, so that a VM's QEMU is
// one process, to which systemd's scope, signals and records refer.

import { type Clock, systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { childrenOf, identifyProcess } from '../../linux/process/running.ts'
import { isUnderSystemd } from '../../linux/process/scope.ts'
import { endOf, type ProcessIdentity, parentOf, signalProcess, spawnDetached } from '../../linux/process.ts'
import { type Confinement, confinedArgv, devicesOf, scopeProperties } from './confinement.plan.ts'
import { isBeforeProgram, jailArgv } from './jail.plan.ts'
import { confinedTpmArgv, tpmScopeProperties } from './tpm.plan.ts'

export type JailedStart = {
  readonly uuid: string
  readonly role:
    | { readonly kind: 'qemu'; readonly confinement: Omit<Confinement, 'systemd'> }
    | { readonly kind: 'tpm'; readonly uid: number }
  /** Files of this host that it sees. */
  readonly files: readonly string[]
  /** Begins with the absolute path; contains the UUID. */
  readonly argv: readonly string[]
  readonly logFile: string
}

/**
 * Starts the program, which gets the descriptors as 3, 4, …; the caller closes its own afterwards. Faults:
 * host.command_failed, host.command_timeout.
 */
export type StartJailed = (start: JailedStart, fds: readonly number[]) => Promise<ProcessIdentity>

export const startJailed: StartJailed = async ({ uuid, role, files, argv, logFile }, fds) => {
  const systemd = isUnderSystemd()
  const isQemu = role.kind === 'qemu'
  const whole = isQemu
    ? confinedArgv({ ...role.confinement, systemd }, jailArgv({ files, devices: devicesOf(role.confinement) }, argv))
    : confinedTpmArgv({ uid: role.uid, systemd }, jailArgv({ files, devices: [] }, argv))
  const { identity } = spawnDetached(whole, {
    uuid,
    program: argv[0],
    stdoutFile: logFile,
    extraFds: fds,
    scope: isQemu ? `strongroom-${uuid}` : `strongroom-${uuid}-tpm`,
    scopeProperties: isQemu ? scopeProperties({ ...role.confinement, systemd }) : tpmScopeProperties(),
    systemd,
  })
  const inner = await settled(identity)
  if (inner !== null) return inner
  throw new Fault('host.command_failed', `${argv[0]}: ended at once; ${endOf(logFile)}`)
}

/**
 * Returns the program's own process once it runs; `started` may be a stage before it. Null if all have ended. Faults:
 * host.command_timeout.
 */
export async function settled(started: ProcessIdentity, clock: Clock = systemClock): Promise<ProcessIdentity | null> {
  const deadlineMs = clock.monotonicMs() + settleTimeoutMs
  for (;;) {
    const found = identifyProcess(started.pid)
    if (found === null || found.startTicks !== started.startTicks) return null
    if (!isBeforeProgram(found.argv)) {
      endWaiting(started)
      return started
    }
    const inner = childrenOf(found.pid).find(child => !isBeforeProgram(child.argv))
    if (inner !== undefined) {
      signalProcess(started, 'SIGKILL')
      return { pid: inner.pid, startTicks: inner.startTicks, uuid: started.uuid }
    }
    if (clock.monotonicMs() >= deadlineMs) {
      for (const child of childrenOf(found.pid)) signalProcess({ ...child, uuid: started.uuid }, 'SIGKILL')
      signalProcess(started, 'SIGKILL')
      throw new Fault('host.command_timeout', `process ${found.pid} of VM ${started.uuid} does not enter its jail`)
    }
    await clock.sleep(settlePollMs)
  }
}

/** Ends the bwrap that waits for the program, in case the process that started it was killed before it could do so. */
function endWaiting({ pid, uuid }: ProcessIdentity): void {
  const parent = parentOf(pid)
  if (parent !== null && parent.argv.length > 0 && isBeforeProgram(parent.argv))
    signalProcess({ ...parent, uuid }, 'SIGKILL')
}

/** A machine under load takes seconds to create a scope. */
const settleTimeoutMs = 15_000
const settlePollMs = 3
