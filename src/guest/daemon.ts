// Keeps a program running after the claim, such as sshd. Effects: a child, its record and log in /run.
//
// The program outlives an agent that dies. The next agent finds it by its record, so no session or response is lost.

import * as fs from 'node:fs'
import { type Clock, pause } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { matches } from '../contract/check.ts'
import { Closed } from '../contract/forms.ts'
import { type Static, Type } from '../contract/type.ts'
import { truncateAbove } from '../linux/files/regular.ts'
import { ensureDir, type Owner, readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { logBytesMax, openForAppend } from './log-file.ts'
import { identifyProcess, isAlive, type ProcessIdentity, signalProcess } from './process-identity.ts'
import { jsonOf } from './wire.codec.ts'

export type Daemon = {
  /**
   * Starts the program, or takes over a running process, and restarts it when it dies. Clients retry until it listens.
   * No effect while a program that it started runs. Faults: host.command_failed.
   */
  readonly start: () => void
  /** Ends the listening process, also an earlier agent's. Sessions of sshd are separate processes and live on. */
  readonly stop: () => Promise<void>
  /** Returns false if it does not run. */
  readonly signal: (name: NodeJS.Signals) => boolean
}

export type DaemonDeps = {
  /** For messages and the log's file name. */
  readonly name: string
  /** File with its process. */
  readonly record: string
  readonly logDir: string
  /** A directory that the program expects. */
  readonly runDir: string | null
  readonly owner: Owner
  readonly argv: readonly [string, ...string[]]
  readonly clock: Clock
  readonly log: Logger
}

/** A process. `ended` is aborted when our child ends; null if an earlier agent started the process. */
type Running = { readonly identity: ProcessIdentity; readonly ended: AbortSignal | null }

const Record = Closed({ pid: Type.Integer(), startTicks: Type.Integer() })
type Record = Static<typeof Record>

const stopPollMs = 20
/**
 * Interval of looks at our child's log. An emulated look takes milliseconds, and a flood of attempts does not fill /run
 * (16 MiB) in this time. The child's end interrupts the wait.
 */
const logPollMs = 5_000
/** Interval of looks at a process that an earlier agent started: only init is notified of its end. */
const takenOverPollMs = 1_000
const stopTimeoutMs = 5_000
const backOffFirstMs = 250
const backOffMaxMs = 30_000
/** A process that ran this long is restarted quickly. */
const steadyMs = 60_000

export function createDaemon(deps: DaemonDeps): Daemon {
  const { name, record, argv, clock, log } = deps
  let watch: AbortController | null = null

  const launch = (): Running => {
    if (deps.runDir !== null) ensureDir(deps.runDir, { mode: 0o755, owner: deps.owner })
    const started = spawnDaemon(argv, deps)
    writeFileAtomic(record, JSON.stringify(started.identity satisfies Record), { mode: 0o600, owner: deps.owner })
    return started
  }

  const stop = async () => {
    watch?.abort()
    watch = null
    const running = recorded(record)
    if (running !== null && signalProcess(running, 'SIGTERM')) {
      const untilMs = clock.monotonicMs() + stopTimeoutMs
      while (isAlive(running) && clock.monotonicMs() < untilMs) await clock.sleep(stopPollMs)
      signalProcess(running, 'SIGKILL')
    }
    fs.rmSync(record, { force: true })
  }

  const keepAlive = async (first: Running, signal: AbortSignal): Promise<void> => {
    let running: Running | null = first
    let backOffMs = backOffFirstMs
    let startedMs = clock.monotonicMs()
    while (!signal.aborted) {
      if (running !== null) await nextLook(running, clock, signal)
      if (signal.aborted) return
      boundLog(deps)
      if (running !== null && isRunning(running)) continue
      if (clock.monotonicMs() - startedMs >= steadyMs) backOffMs = backOffFirstMs
      log.warn(`${name} ended, restarting`, { backOffMs })
      await clock.sleep(backOffMs, signal)
      backOffMs = Math.min(2 * backOffMs, backOffMaxMs)
      startedMs = clock.monotonicMs()
      try {
        running = launch()
      } catch (error) {
        log.error(`${name} does not start`, { reason: messageOf(error) })
        running = null
      }
    }
  }

  return {
    start: () => {
      const running = recorded(record)
      if (watch !== null && running !== null) return
      watch?.abort()
      const daemon = running === null ? launch() : { identity: running, ended: null }
      watch = new AbortController()
      const { signal } = watch
      keepAlive(daemon, signal).catch(error => {
        if (!signal.aborted) log.error(`${name} is no longer watched`, { reason: messageOf(error) })
      })
    },
    stop,
    signal: name => {
      const running = recorded(record)
      return running !== null && signalProcess(running, name)
    },
  }
}

/** Waits until our child ends or its log is due. */
async function nextLook({ ended }: Running, clock: Clock, signal: AbortSignal): Promise<void> {
  if (ended === null) return clock.sleep(takenOverPollMs, signal)
  // `stop` ends the child, and so this wait.
  await pause(clock, logPollMs, ended)
}

function isRunning({ identity, ended }: Running): boolean {
  return ended?.aborted !== true && isAlive(identity)
}

function recorded(path: string): ProcessIdentity | null {
  const record = jsonOf(readTextOrNull(path) ?? 'null')
  return matches(Record, record) && isAlive(record) ? record : null
}

/** Strangers fill sshd's log, with a line per attempt. */
function boundLog({ logDir, name }: Pick<DaemonDeps, 'logDir' | 'name'>): void {
  try {
    keepBounded(logDir, name)
  } catch {
    // The next look tries it again.
  }
}

function spawnDaemon(
  argv: readonly [string, ...string[]],
  { name, logDir, owner }: Pick<DaemonDeps, 'name' | 'logDir' | 'owner'>,
): Running {
  let pid: number
  const ended = new AbortController()
  const logFd = openProgramLog(logDir, name, owner)
  try {
    // Detached: in a separate session, which signals to the agent's group do not reach.
    const child = Bun.spawn([...argv], { stdin: 'ignore', stdout: 'ignore', stderr: logFd, detached: true })
    child.unref()
    pid = child.pid
    child.exited.finally(() => ended.abort()).catch(() => {})
  } catch (error) {
    throw new Fault('host.command_failed', `${name}: ${messageOf(error)}`)
  } finally {
    fs.closeSync(logFd)
  }
  const identity = identifyProcess(pid)
  if (identity === null) throw new Fault('host.command_failed', `${name}: ended at once`)
  return { identity, ended: ended.signal }
}

/** A descriptor for another program to append to; `keepBounded` keeps the file small. The caller closes it. */
export function openProgramLog(dir: string, name: string, owner: Owner): number {
  ensureDir(dir, { mode: 0o700, owner })
  return openForAppend(`${dir}/${name}.log`)
}

/** Empties a program's log when it is full: the program goes on appending. */
export function keepBounded(dir: string, name: string): void {
  truncateAbove(`${dir}/${name}.log`, logBytesMax)
}
