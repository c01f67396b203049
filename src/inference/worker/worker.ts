// The built-in worker: llama-server in a sandbox, admitted, started, watched, restarted with back-off. Effects: processes, files, its socket.
//
// Nothing here throws into the appliance's start: without a worker the gateway answers 502 for its model, and the log says why.

import { lstatSync } from 'node:fs'
import type { Clock } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { Admission, WorkloadCandidate } from '../../contract/allowlist.ts'
import { checkSocketPath } from '../../host/qemu/unix-socket.ts'
import type { StartSandboxed } from '../../host/sandbox.ts'
import { ensureDir, type Owner, removeTree } from '../../linux/files.ts'
import { restartDelayMs, type WorkerSettings, workerCommand, workerSandbox, workerSocketName } from './command.plan.ts'
import { checkModelFile, createModelReader, type Model, type ReadModel } from './model.ts'
import type { WorkerRoot } from './root.ts'

/** How the router reaches it. */
export type WorkerUpstream = {
  readonly name: 'built-in'
  readonly models: readonly string[]
  readonly weight: number
  readonly concurrencyMax: number
  /** Up to and including /v1; the host in it is never looked up. */
  readonly baseUrl: string
  readonly unix: string
}

export type WorkerState =
  | { readonly kind: 'starting' }
  | { readonly kind: 'ready'; readonly pid: number }
  /** Failed; it will be tried again. */
  | { readonly kind: 'failed'; readonly message: string }
  /** The allowlist does not have it; it is not tried again. */
  | { readonly kind: 'refused'; readonly message: string }
  | { readonly kind: 'stopped' }

export type WorkerTiming = {
  readonly pollMs: number
  readonly healthIntervalMs: number
  readonly healthTimeoutMs: number
  /** In a row, of a worker that was ready; then it is killed. */
  readonly healthFailuresMax: number
  /** After this long, ready, earlier failures are forgotten. */
  readonly stableMs: number
}

export const workerTiming: WorkerTiming = {
  pollMs: 50,
  healthIntervalMs: 5_000,
  healthTimeoutMs: 5_000,
  healthFailuresMax: 3,
  stableMs: 60_000,
}

export type WorkerDeps = {
  readonly settings: WorkerSettings
  readonly stateDir: string
  /** Checked and unpacked, or a Fault that says why not; asked before each start. */
  readonly root: () => Promise<WorkerRoot>
  /** Unprivileged. May throw: there is no such user. */
  readonly user: () => Owner
  readonly startSandboxed: StartSandboxed
  /** Asked before each start, with the digest of the bytes that will run. */
  readonly admit: (candidate: WorkloadCandidate) => Admission
  /** Each time it has become healthy. */
  readonly onReady: () => void
  readonly clock: Clock
  readonly log: Logger
  readonly timing: WorkerTiming
}

export type Worker = {
  readonly upstream: WorkerUpstream
  readonly state: () => WorkerState
  /** Begins; the outcome is in the log and in `settled`. */
  readonly start: () => void
  /** The first state that is not `starting`. */
  readonly settled: Promise<WorkerState>
  /** Ends the process and all restarts; resolves when it is gone. Idempotent. */
  readonly stop: () => Promise<void>
}

/** Fault host.unsupported when the state directory's path is too long for a socket in it. */
export function createWorker(deps: WorkerDeps): Worker {
  const { settings, log } = deps
  const socketDir = `${deps.stateDir}/worker`
  const socket = checkSocketPath(`${socketDir}/${workerSocketName}`)
  const readModel = createModelReader(settings.model_file)
  const stopping = new AbortController()
  const settled = Promise.withResolvers<WorkerState>()
  let state: WorkerState = { kind: 'starting' }
  let running: Promise<void> | null = null
  const become = (next: WorkerState) => {
    state = next
    if (next.kind !== 'starting') settled.resolve(next)
    if (next.kind === 'ready') deps.onReady()
    if (next.kind === 'ready') log.info('worker ready', { model: settings.model, pid: next.pid })
    if (next.kind === 'refused' || next.kind === 'failed') {
      log.error('the built-in worker does not run; its model answers 502', {
        model: settings.model,
        error: next.message,
      })
    }
  }
  const stop = async () => {
    stopping.abort()
    await running
    become({ kind: 'stopped' })
  }
  return {
    upstream: {
      name: 'built-in',
      models: [settings.model],
      weight: 1,
      concurrencyMax: settings.parallel,
      baseUrl: 'http://built-in/v1',
      unix: socket,
    },
    state: () => state,
    start: () => {
      if (!stopping.signal.aborted)
        running ??= supervise({ ...deps, readModel, socketDir, socket, signal: stopping.signal, become })
    },
    settled: settled.promise,
    stop,
  }
}

type Supervision = WorkerDeps & {
  readonly readModel: ReadModel
  readonly socketDir: string
  readonly socket: string
  readonly signal: AbortSignal
  readonly become: (state: WorkerState) => void
}

async function supervise(deps: Supervision): Promise<void> {
  const { clock, signal, become } = deps
  for (let failures = 1; !signal.aborted; failures += 1) {
    let readyAtMs: number | null = null
    try {
      const onReady = () => {
        readyAtMs = clock.monotonicMs()
      }
      // Before the root is unpacked: a mistake in the configuration is told at once.
      checkModelFile(deps.settings.model_file)
      await runOnce(deps, await deps.root(), onReady)
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof Refused) return become({ kind: 'refused', message: error.message })
      become({ kind: 'failed', message: messageOf(error) })
    }
    if (readyAtMs !== null && clock.monotonicMs() - readyAtMs >= deps.timing.stableMs) failures = 1
    await clock.sleep(restartDelayMs(failures), signal).catch(() => {})
  }
}

/** Not on the allowlist. */
class Refused extends Error {}

/** One life of the process: returns only when told to stop, else throws with the reason. */
async function runOnce(deps: Supervision, root: WorkerRoot, onReady: () => void): Promise<void> {
  const { settings, signal, socketDir, become } = deps
  const user = deps.user()
  const model = await deps.readModel(signal)
  const command = workerCommand(settings, model.digest)
  const admission = deps.admit({ workload: 'inference-worker', imageDigest: root.digest, command })
  if (!admission.ok) throw new Refused(admission.fault.message)
  // A socket of an earlier life would stop the new one from listening.
  removeTree(socketDir)
  ensureDir(socketDir, { mode: 0o700, owner: user })
  if (signal.aborted) return
  become({ kind: 'starting' })
  const ending = new AbortController()
  const life = { ...deps, signal: AbortSignal.any([signal, ending.signal]) }
  const tail = createTail()
  const sandbox = workerSandbox(settings, { root: root.path, socketDir, user, modelDigest: model.digest })
  const child = deps.startSandboxed(sandbox, command, { onLine: tail.add, lineBytesMax: outputLineBytesMax })
  try {
    const ended = child.exited.then(exitCode => {
      throw new Fault(
        'host.command_failed',
        `model ${settings.model_file}: the worker ended with exit code ${exitCode}${boundOf(settings)}${tail.text()}`,
      )
    })
    ended.catch(() => {})
    await Promise.race([ended, becomeHealthy(life, tail)])
    if (signal.aborted) return
    // It is mounted and open by now: what was read is what it serves.
    model.checkUnchanged()
    takeSocket(deps)
    // From here on its output may quote requests.
    tail.close()
    onReady()
    become({ kind: 'ready', pid: child.pid })
    await Promise.race([ended, watch(life, model)])
  } finally {
    ending.abort()
    await child.kill()
    removeTree(socketDir)
  }
}

/** From here on the worker cannot put anything else, such as a link to another socket of this host, in the place of its own. */
function takeSocket({ socket, socketDir }: Supervision): void {
  ensureDir(socketDir, { mode: 0o700, owner: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 } })
  if (!lstatSync(socket).isSocket()) throw new Fault('host.command_failed', `${socket} is no socket`)
}

/** The kernel says nothing to us when it refuses memory or kills for it. */
function boundOf({ memory_mib_max: memoryMiBMax }: WorkerSettings): string {
  return memoryMiBMax === 0 ? '' : ` (its memory is bounded to ${memoryMiBMax} MiB by memory_mib_max)`
}

/** Returns when it is healthy or the signal says stop. Fault host.command_timeout. */
async function becomeHealthy(deps: Supervision, tail: Tail): Promise<void> {
  const { clock, settings, signal, timing } = deps
  const deadlineMs = clock.monotonicMs() + settings.start_timeout_ms
  while (!(await isHealthy(deps))) {
    if (signal.aborted) return
    if (clock.monotonicMs() >= deadlineMs) {
      throw new Fault(
        'host.command_timeout',
        `model ${settings.model_file}: the worker was not healthy within ${settings.start_timeout_ms} ms${tail.text()}`,
      )
    }
    await clock.sleep(timing.pollMs, signal).catch(() => {})
  }
}

/** Returns when the signal says stop. Faults: host.command_timeout when the worker does not answer any more, host.command_failed when its model changes. */
async function watch(deps: Supervision, model: Model): Promise<void> {
  const { clock, signal, timing } = deps
  let failures = 0
  while (!signal.aborted) {
    await clock.sleep(timing.healthIntervalMs, signal).catch(() => {})
    if (!signal.aborted) model.checkUnchanged()
    failures = (await isHealthy(deps)) ? 0 : failures + 1
    if (failures >= timing.healthFailuresMax && !signal.aborted) {
      throw new Fault('host.command_timeout', `the worker failed ${failures} health checks in a row`)
    }
  }
}

async function isHealthy({ socket, signal, timing }: Supervision): Promise<boolean> {
  try {
    const response = await fetch('http://built-in/health', {
      unix: socket,
      // A connection of its own: a kept one may lead to an earlier life.
      keepalive: false,
      signal: AbortSignal.any([signal, AbortSignal.timeout(timing.healthTimeoutMs)]),
    })
    await response.body?.cancel()
    return response.ok
  } catch {
    return false
  }
}

type Tail = { readonly add: (line: string) => void; readonly text: () => string; readonly close: () => void }

const tailLinesMax = 12
const outputLineBytesMax = 2_000

/** The last lines of output, until it is closed. */
function createTail(): Tail {
  const lines: string[] = []
  let isOpen = true
  return {
    add: line => {
      if (!isOpen || line.trim() === '') return
      lines.push(line)
      if (lines.length > tailLinesMax) lines.shift()
    },
    text: () => (lines.length === 0 ? '' : `:\n${lines.join('\n')}`),
    close: () => {
      isOpen = false
      lines.length = 0
    },
  }
}
