// Processes that outlive the program that started them. Effects: starts, identifies and signals processes; reads /proc.
//
// A process is identified by its number, its start time and a UUID in its command line, because the kernel reuses
// numbers.

import { closeSync, constants as fsConstants, readdirSync, readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { type Clock, systemClock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { plainEnv } from './command.ts'
import { openRegular } from './files/regular.ts'
import { duplicateFd, pidfdOpen, pidfdSendSignal } from './libc/pidfd.ts'
import { errnoName } from './libc.ts'
import { identifyProcess, type RunningProcess } from './process/running.ts'
import { isUnderSystemd, scopeArgv } from './process/scope.ts'
import { readProc } from './stat.ts'

export type ProcessIdentity = { readonly pid: number; readonly startTicks: number; readonly uuid: string }

/** Whether this process still runs: same number, same start time, and the UUID in its command line. */
export function isAlive(identity: ProcessIdentity): boolean {
  const found = identifyProcess(identity.pid)
  return (
    found !== null &&
    found.startTicks === identity.startTicks &&
    identity.uuid.length > 0 &&
    found.argv.some(argument => argument.includes(identity.uuid))
  )
}

type SignalName = 'SIGTERM' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT' | 'SIGINT'

/** Signals this process, never a later one with its number; false if it is gone. Fault host.unsupported (no pidfd). */
export function signalProcess(identity: ProcessIdentity, signal: SignalName): boolean {
  const opened = pidfdOpen(identity.pid)
  if (!opened.ok) return goneOrFault(opened.errno, 'pidfd_open')
  try {
    // After the pidfd is open, so the verified process is the one that gets the signal.
    if (!isAlive(identity)) return false
    const sent = pidfdSendSignal(opened.value, constants.signals[signal])
    return sent.ok || goneOrFault(sent.errno, 'pidfd_send_signal')
  } finally {
    closeSync(opened.value)
  }
}

function goneOrFault(errno: number, call: string): false {
  if (errno === constants.errno.ESRCH) return false
  throw new Fault('host.unsupported', `${call}: ${errnoName(errno)}`)
}

const gonePollMs = 20

/** True once the process is gone, false if it lives after `timeoutMs`. */
export async function waitGone(
  identity: ProcessIdentity,
  timeoutMs: number,
  clock: Clock = systemClock,
): Promise<boolean> {
  const deadlineMs = clock.monotonicMs() + timeoutMs
  while (isAlive(identity)) {
    if (clock.monotonicMs() >= deadlineMs) return false
    await clock.sleep(gonePollMs)
  }
  return true
}

type Detached = {
  /** Must be in argv. */
  readonly uuid: string
  /** The program that argv leads to at last, as faults name it. Default: the first word of argv. */
  readonly program?: string | undefined
  /** stdout and stderr are appended here: a regular file, ours, mode 0600. */
  readonly stdoutFile: string
  /** Descriptors that the child sees as 3, 4, …, in this order; the caller closes its own afterwards. */
  readonly extraFds?: readonly number[]
  readonly env?: Record<string, string>
  /** Name of the systemd scope, without `.scope`; not used where systemd does not run. */
  readonly scope: string
  /** The scope's, as `Name=value`: systemd.resource-control(5). */
  readonly scopeProperties?: readonly string[]
  /** Whether systemd runs this machine; looked up unless given. */
  readonly systemd?: boolean
}

type DetachedProcess = {
  readonly identity: ProcessIdentity
  /** Exit code, 128 + signal number when killed; visible only to the daemon that started it. */
  readonly exited: Promise<number>
}

/**
 * Starts a process that outlives us: own session, no terminal, no pipe to us, its own systemd scope where systemd runs.
 * Fault host.command_failed when it cannot start or is gone at once.
 */
export function spawnDetached(argv: readonly string[], detached: Detached): DetachedProcess {
  if (!argv.some(argument => argument.includes(detached.uuid))) {
    throw new Fault('host.command_failed', `${argv[0]}: its arguments do not hold UUID ${detached.uuid}`)
  }
  const systemd = detached.systemd ?? isUnderSystemd()
  const whole = systemd ? scopeArgv(argv, detached.scope, detached.scopeProperties) : [...argv]
  const flags = fsConstants.O_WRONLY | fsConstants.O_CREAT | fsConstants.O_APPEND
  const opened: number[] = []
  try {
    const output = openRegular(detached.stdoutFile, flags)
    opened.push(output)
    const extra = (detached.extraFds ?? []).map(fd => {
      // Copies far above 3, 4, …, so that no dup2 in the child overwrites one that is still to be placed.
      const copy = duplicateFd(fd, inheritedFdMin)
      if (!copy.ok) throw new Fault('host.command_failed', `pass descriptor ${fd}: ${errnoName(copy.errno)}`)
      opened.push(copy.value)
      return copy.value
    })
    const child = Bun.spawn(whole, {
      stdio: ['ignore', output, output, ...extra],
      env: detached.env ?? plainEnv,
      cwd: '/',
      detached: true,
    })
    child.unref()
    const found = identifyProcess(child.pid)
    if (found === null) throw new Fault('host.command_failed', `ended at once; ${endOf(detached.stdoutFile)}`)
    return {
      identity: { pid: child.pid, startTicks: found.startTicks, uuid: detached.uuid },
      exited: child.exited,
    }
  } catch (error) {
    throw new Fault('host.command_failed', `${detached.program ?? argv[0]}: ${messageOf(error)}`, { cause: error })
  } finally {
    for (const fd of opened) closeSync(fd)
  }
}

const inheritedFdMin = 64

/** Last words in a log, on one line, with the path of the log. */
export function endOf(logFile: string): string {
  const text = readFileSync(logFile, 'utf8').slice(-endCharsMax).trim()
  return `${logFile} ends: ${text === '' ? 'nothing' : text.replaceAll(/\s+/g, ' ')}`
}

const endCharsMax = 400

/**
 * Every living process started with `-uuid <uuid>`, like QEMU: to compare with the records, and to find one started
 * just before a crash. The UUID is the process's claim: it may overwrite its arguments.
 */
export function listWithUuid(): ProcessIdentity[] {
  const identities: ProcessIdentity[] = []
  for (const name of readdirSync('/proc')) {
    const pid = Number(name)
    if (!Number.isInteger(pid) || pid === process.pid) continue
    const found = identifyProcess(pid)
    const uuid = found?.argv[found.argv.indexOf('-uuid') + 1]
    if (found?.argv.includes('-uuid') && uuid !== undefined && UUID.test(uuid)) {
      identities.push({ pid, startTicks: found.startTicks, uuid })
    }
  }
  return identities
}

/** Null if it has no living one, or has itself ended. */
export function parentOf(pid: number): RunningProcess | null {
  const parent = /^PPid:\t(\d+)$/m.exec(readProc(pid, 'status') ?? '')?.[1]
  return parent === undefined ? null : identifyProcess(Number(parent))
}

/** Every living process with this text in an argument; it may lie, as above. */
export function listWithArgument(text: string): RunningProcess[] {
  return readdirSync('/proc').flatMap(name => {
    const pid = Number(name)
    const found = Number.isInteger(pid) && pid !== process.pid ? identifyProcess(pid) : null
    return found?.argv.some(argument => argument.includes(text)) ? [found] : []
  })
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
