// Keeps sshd running after the claim. Effects: one detached child, a record and a log of it below /run.
//
// sshd outlives an agent that dies: the agent's successor finds it through the record, and no session is lost.

import * as fs from 'node:fs'
import { type Static, Type } from '@sinclair/typebox'
import { Check } from '@sinclair/typebox/value'
import type { Clock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { ensureDir, type Owner, readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { keepBounded, openProgramLog } from './log-file.ts'
import type { GuestPaths } from './paths.ts'
import { identifyProcess, isAlive, isListening, type ProcessIdentity, signalProcess } from './process-identity.ts'
import { jsonOf } from './wire.codec.ts'

export type Sshd = {
  /** Resolves when sshd listens; from then on it is restarted when it dies. Takes over an sshd that runs already. Faults: host.command_failed, host.command_timeout. */
  readonly start: () => Promise<void>
  /** Ends the listening sshd, also one of an earlier agent. Sessions are processes of their own and live on. */
  readonly stop: () => Promise<void>
}

export type SshdDeps = {
  readonly paths: Pick<GuestPaths, 'sshdRecord' | 'sshdRunDir' | 'logDir'>
  readonly owner: Owner
  readonly sshdArgv: readonly [string, ...string[]]
  readonly sshPort: number
  readonly clock: Clock
  readonly log: Logger
  readonly listenTimeoutMs: number
}

const Record = Type.Object({ pid: Type.Integer(), startTicks: Type.Integer() }, { additionalProperties: false })
type Record = Static<typeof Record>

const listenPollMs = 20
const watchPollMs = 1_000
const stopTimeoutMs = 5_000
const backOffFirstMs = 250
const backOffMaxMs = 30_000
/** An sshd that ran this long is restarted quickly. */
const steadyMs = 60_000

export function createSshd(deps: SshdDeps): Sshd {
  const { paths, clock, log } = deps
  let watch: AbortController | null = null

  const launch = async (): Promise<ProcessIdentity> => {
    ensureDir(paths.sshdRunDir, { mode: 0o755, owner: deps.owner })
    const sshd = spawnSshd(deps.sshdArgv, { logDir: paths.logDir, owner: deps.owner })
    writeFileAtomic(paths.sshdRecord, JSON.stringify(sshd satisfies Record), { mode: 0o600, owner: deps.owner })
    const untilMs = clock.monotonicMs() + deps.listenTimeoutMs
    while (!isListening(sshd, deps.sshPort)) {
      if (!isAlive(sshd)) throw new Fault('host.command_failed', 'sshd: ended before it listened')
      if (clock.monotonicMs() >= untilMs) throw new Fault('host.command_timeout', 'sshd: does not listen')
      await clock.sleep(listenPollMs)
    }
    return sshd
  }

  const stop = async () => {
    watch?.abort()
    watch = null
    const sshd = recorded(paths)
    if (sshd !== null && signalProcess(sshd, 'SIGTERM')) {
      const untilMs = clock.monotonicMs() + stopTimeoutMs
      while (isAlive(sshd) && clock.monotonicMs() < untilMs) await clock.sleep(listenPollMs)
      signalProcess(sshd, 'SIGKILL')
    }
    fs.rmSync(paths.sshdRecord, { force: true })
  }

  /** Polls instead of waiting for a child's exit: after a take-over sshd is init's child, not ours. */
  const keepAlive = async (first: ProcessIdentity, signal: AbortSignal): Promise<void> => {
    let sshd: ProcessIdentity | null = first
    let backOffMs = backOffFirstMs
    let startedMs = clock.monotonicMs()
    while (!signal.aborted) {
      await clock.sleep(watchPollMs, signal)
      boundLog(paths.logDir)
      if (sshd !== null && isAlive(sshd)) continue
      if (clock.monotonicMs() - startedMs >= steadyMs) backOffMs = backOffFirstMs
      log.warn('sshd ended, restarting', { backOffMs })
      await clock.sleep(backOffMs, signal)
      backOffMs = Math.min(2 * backOffMs, backOffMaxMs)
      startedMs = clock.monotonicMs()
      sshd = await launch().catch(error => {
        log.error('sshd does not start', { reason: messageOf(error) })
        return null
      })
    }
  }

  return {
    start: async () => {
      const running = recorded(paths)
      const sshd = running !== null && isListening(running, deps.sshPort) ? running : await restart(stop, launch)
      watch = new AbortController()
      const { signal } = watch
      keepAlive(sshd, signal).catch(error => {
        if (!signal.aborted) log.error('sshd is no longer watched', { reason: messageOf(error) })
      })
    },
    stop,
  }
}

/** An sshd that hangs or never listened would keep the port. */
async function restart(stop: () => Promise<void>, launch: () => Promise<ProcessIdentity>): Promise<ProcessIdentity> {
  await stop()
  try {
    return await launch()
  } catch (error) {
    await stop()
    throw error
  }
}

function recorded(paths: Pick<GuestPaths, 'sshdRecord'>): ProcessIdentity | null {
  const record = jsonOf(readTextOrNull(paths.sshdRecord) ?? 'null')
  return Check(Record, record) && isAlive(record) ? record : null
}

const logName = 'sshd'

/** Strangers fill it, with an attempt each. */
function boundLog(logDir: string): void {
  try {
    keepBounded(logDir, logName)
  } catch {
    // It is tried again in a second.
  }
}

function spawnSshd(
  argv: readonly [string, ...string[]],
  { logDir, owner }: { readonly logDir: string; readonly owner: Owner },
): ProcessIdentity {
  let pid: number
  const logFd = openProgramLog(logDir, logName, owner)
  try {
    // Detached: a session of its own, which no signal to the agent's group reaches.
    const child = Bun.spawn([...argv], { stdin: 'ignore', stdout: 'ignore', stderr: logFd, detached: true })
    child.unref()
    pid = child.pid
  } catch (error) {
    throw new Fault('host.command_failed', `sshd: ${messageOf(error)}`)
  } finally {
    fs.closeSync(logFd)
  }
  const sshd = identifyProcess(pid)
  if (sshd === null) throw new Fault('host.command_failed', 'sshd: ended at once')
  return sshd
}
