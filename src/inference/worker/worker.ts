// The built-in worker: llama-server in a sandbox, admitted, started, watched, restarted with back-off. Effects:
// processes, files, its socket.
//
// Ready means healthy, with the right golden answer if its model has one. A worker that cannot run does not stop the
// appliance: the gateway responds with 502 for its model, and the log has the reason.

import { lstatSync } from 'node:fs'
import { toHex } from '../../base/bytes.ts'
import { type Clock, pause } from '../../base/clock.ts'
import { Fault, messageOf, wrapFault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { workerUpstreamName } from '../../config/upstream/kinds.ts'
import type { Admission, WorkloadCandidate } from '../../contract/vm/allowlist.ts'
import type { WorkloadModel } from '../../contract/vm/workload.ts'
import { checkSocketPath } from '../../host/qemu/socket-path.ts'
import type { StartSandboxed } from '../../host/sandbox.ts'
import { ensureDir, type Owner } from '../../linux/files.ts'
import { restartDelayMs, type WorkerSettings, workerCommand, workerSandbox, workerSocketName } from './command.plan.ts'
import { checkGolden } from './golden.ts'
import { becomesHealthy, type HealthDeps, type HealthTiming, watchHealth } from './health.ts'
import { checkModelFile, createModelReader, type ReadModel } from './model.ts'
import type { WorkerRoot } from './root.ts'

/** Name and address by which the router reaches the worker. */
export type WorkerUpstream = {
  readonly name: typeof workerUpstreamName
  readonly models: readonly string[]
  readonly weight: number
  readonly concurrencyMax: number
  /** Up to and including /v1; its host is never resolved. */
  readonly baseUrl: string
  readonly unix: string
}

export type WorkerState =
  | { readonly kind: 'starting' }
  | { readonly kind: 'ready'; readonly pid: number }
  /** The worker will be restarted. */
  | { readonly kind: 'failed'; readonly message: string }
  /** Not on the allowlist; the worker is not restarted. */
  | { readonly kind: 'refused'; readonly message: string }
  | { readonly kind: 'stopped' }

export type WorkerTiming = HealthTiming & {
  /** A worker that was ready for this long counts as stable: its next failure counts as the first. */
  readonly stableMs: number
}

export const workerTiming: WorkerTiming = {
  pollMs: 50,
  healthIntervalMs: 5_000,
  healthTimeoutMs: 5_000,
  /** No share: limits the worker. */
  healthFailuresMax: 3,
  stableMs: 60_000,
}

/** Known facts of the model. A worker with another file, or another golden answer, does not become ready. */
export type KnownModel = Pick<WorkloadModel, 'name' | 'fileSha256' | 'golden'>

export type WorkerDeps = {
  readonly settings: WorkerSettings
  readonly stateDir: string
  /** Checks and unpacks the worker's root. Called before each start; rejects with a Fault. */
  readonly root: () => Promise<WorkerRoot>
  /** Returns the unprivileged user that it runs as. Throws if there is no such user. */
  readonly user: () => Owner
  readonly startSandboxed: StartSandboxed
  /** Removes files of an earlier worker, regardless of their number. */
  readonly removeTree: (path: string, timeoutMs: number) => Promise<void>
  /**
   * Called before each start, before the file is opened, to make it available. Resolves with the facts from its disk;
   * null if there are none, so any file is served. Rejects with a Fault.
   */
  readonly openModel: () => Promise<KnownModel | null>
  /** Called before each start, with the digest of the bytes that will run. */
  readonly admit: (candidate: WorkloadCandidate) => Admission
  /** Called each time the worker has become healthy. */
  readonly onReady: () => void
  readonly clock: Clock
  readonly log: Logger
  readonly timing: WorkerTiming
}

export class BuiltInWorker {
  readonly upstream: WorkerUpstream
  /** The first state that is not `starting`. */
  readonly settled: Promise<WorkerState>
  readonly #deps: WorkerDeps
  readonly #socketDir: string
  readonly #readModel: ReadModel
  readonly #stopping = new AbortController()
  readonly #settle: (state: WorkerState) => void
  #state: WorkerState = { kind: 'starting' }
  #running: Promise<void> | null = null

  /** Throws Fault host.unsupported if the state directory's path is too long for a socket in it. */
  constructor(deps: WorkerDeps) {
    const { model, parallel, model_file } = deps.settings
    this.#deps = deps
    this.#socketDir = `${deps.stateDir}/worker`
    this.#readModel = createModelReader(model_file)
    const settled = Promise.withResolvers<WorkerState>()
    this.settled = settled.promise
    this.#settle = settled.resolve
    this.upstream = {
      name: workerUpstreamName,
      models: [model],
      weight: 1,
      concurrencyMax: parallel,
      baseUrl: 'http://built-in/v1',
      unix: checkSocketPath(`${this.#socketDir}/${workerSocketName}`),
    }
  }

  get state(): WorkerState {
    return this.#state
  }

  /** Starts the worker. The outcome is in the log and in `settled`. No effect after `stop`. */
  start(): void {
    if (!this.#stopping.signal.aborted) this.#running ??= this.#supervise()
  }

  /** Ends the process and all restarts; resolves when it has ended. Idempotent. */
  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#running
    this.#become({ kind: 'stopped' })
  }

  #become(next: WorkerState): void {
    const { settings, log, onReady } = this.#deps
    this.#state = next
    if (next.kind !== 'starting') this.#settle(next)
    if (next.kind === 'ready') {
      onReady()
      log.info('worker ready', { model: settings.model, pid: next.pid })
    } else if (next.kind === 'refused' || next.kind === 'failed') {
      const fields = { model: settings.model, error: next.message }
      log.error('the built-in worker does not run; requests for its model get 502', fields)
    }
  }

  /** Starts the process repeatedly, until the worker is stopped or refused. */
  async #supervise(): Promise<void> {
    const { clock, settings, timing, openModel, root } = this.#deps
    const { signal } = this.#stopping
    for (let failures = 1; !signal.aborted; failures += 1) {
      let readyAtMs: number | null = null
      const onReady = () => {
        readyAtMs = clock.monotonicMs()
      }
      try {
        // Before the root is unpacked, which takes seconds, so that a mistake in the configuration is reported at once.
        const known = await openModel()
        checkModelFile(settings.model_file)
        await this.#runOnce({ root: await root(), known }, onReady)
      } catch (error) {
        if (signal.aborted) return
        if (error instanceof ModelRefused) return this.#become({ kind: 'refused', message: error.message })
        this.#become({ kind: 'failed', message: messageOf(error) })
      }
      if (readyAtMs !== null && clock.monotonicMs() - readyAtMs >= timing.stableMs) failures = 1
      await pause(clock, restartDelayMs(failures), signal)
    }
  }

  /** Runs one process. Returns only when the worker is stopped, otherwise throws the reason. */
  async #runOnce(
    { root, known }: { readonly root: WorkerRoot; readonly known: KnownModel | null },
    onReady: () => void,
  ): Promise<void> {
    const { settings, startSandboxed, admit } = this.#deps
    const socketDir = this.#socketDir
    const { signal } = this.#stopping
    const user = this.#deps.user()
    const model = await this.#readModel(signal)
    this.#checkFile(known, model.digest)
    const command = workerCommand(settings, model.digest)
    const admission = admit({ workload: 'inference-worker', imageDigest: root.digest, command })
    if (!admission.ok) throw new ModelRefused(admission.fault.message)
    // The socket of an earlier process would keep the new one from listening.
    await this.#deps.removeTree(socketDir, removeTimeoutMs)
    ensureDir(socketDir, { mode: 0o700, owner: user })
    if (signal.aborted) return
    this.#become({ kind: 'starting' })
    const output = new OutputTail()
    const sandbox = workerSandbox(settings, { root: root.path, socketDir, user, modelDigest: model.digest })
    const child = startSandboxed(sandbox, command, {
      onLine: line => output.add(line),
      lineBytesMax: outputLineBytesMax,
    })
    const ended = new AbortController()
    try {
      const exit = child.exited.then(exitCode => {
        const reason = `the worker ended with exit code ${exitCode}${memoryNote(settings)}${output.text()}`
        throw new Fault('host.command_failed', `model ${settings.model_file}: ${reason}`)
      })
      exit.catch(() => {})
      const health = this.#healthDeps(AbortSignal.any([signal, ended.signal]))
      await Promise.race([exit, this.#becomeHealthy(health, output)])
      if (signal.aborted) return
      // The worker has opened the file by now, so it serves the file that was hashed.
      model.checkUnchanged()
      this.#takeSocket()
      await Promise.race([exit, this.#askGolden(known, health.signal, output)])
      if (signal.aborted) return
      // From here on its output may quote requests.
      output.close()
      onReady()
      this.#become({ kind: 'ready', pid: child.pid })
      await Promise.race([exit, watchHealth(health, model.checkUnchanged)])
    } finally {
      ended.abort()
      await child.kill()
      await this.#deps.removeTree(socketDir, removeTimeoutMs)
    }
  }

  #healthDeps(signal: AbortSignal): HealthDeps {
    const { clock, timing } = this.#deps
    return { socket: this.upstream.unix, clock, timing, signal }
  }

  /** Waits until the worker is healthy. Throws Fault host.command_timeout. */
  async #becomeHealthy(health: HealthDeps, output: OutputTail): Promise<void> {
    const { model_file, start_timeout_ms } = this.#deps.settings
    if ((await becomesHealthy(health, start_timeout_ms)) || health.signal.aborted) return
    const reason = `the worker was not healthy within ${start_timeout_ms} ms${output.text()}`
    throw new Fault('host.command_timeout', `model ${model_file}: ${reason}`)
  }

  /** Checks that the file is the known model's. Throws Fault config.file. */
  #checkFile(known: KnownModel | null, digest: Uint8Array): void {
    if (known === null || known.fileSha256 === toHex(digest)) return
    const problem = `SHA-256 ${toHex(digest)}; the file of model ${known.name} has ${known.fileSha256}`
    throw new Fault('config.file', `model ${this.#deps.settings.model_file}: ${problem}`)
  }

  /** Checks the golden answer. Faults: host.command_failed, host.command_timeout. */
  async #askGolden(known: KnownModel | null, signal: AbortSignal, output: OutputTail): Promise<void> {
    if (known === null || known.golden === null) return
    const timeoutMs = this.#deps.settings.start_timeout_ms
    try {
      await checkGolden(known.golden, { socket: this.upstream.unix, timeoutMs, signal })
    } catch (error) {
      if (signal.aborted) return
      const fault = wrapFault(error, `model ${known.name}`)
      throw new Fault(fault.code, `${fault.message}${output.text()}`, { cause: error })
    }
  }

  /** Prevents the worker from replacing its socket, for example with a link to another socket of this host. */
  #takeSocket(): void {
    const self = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
    ensureDir(this.#socketDir, { mode: 0o700, owner: self })
    const socket = this.upstream.unix
    if (!lstatSync(socket).isSocket()) throw new Fault('host.command_failed', `${socket} is no socket`)
  }
}

/** The worker is not on the allowlist. */
class ModelRefused extends Error {}

/** Returns a note about the memory limit, because the kernel does not report refused memory or an OOM kill. */
function memoryNote({ memory_mib_max: memoryMiBMax }: WorkerSettings): string {
  return memoryMiBMax === 0 ? '' : ` (its memory is bounded to ${memoryMiBMax} MiB by memory_mib_max)`
}

/** Limit for removing the files of an ended worker, regardless of their number. */
const removeTimeoutMs = 60_000
const outputLinesMax = 12
const outputLineBytesMax = 2_000

/** The last lines of the process's output, until it is closed. */
class OutputTail {
  readonly #lines: string[] = []
  #isOpen = true

  add(line: string): void {
    if (!this.#isOpen || line.trim() === '') return
    this.#lines.push(line)
    if (this.#lines.length > outputLinesMax) this.#lines.shift()
  }

  /** Returns text for the end of an error message. */
  text(): string {
    return this.#lines.length === 0 ? '' : `:\n${this.#lines.join('\n')}`
  }

  close(): void {
    this.#isOpen = false
    this.#lines.length = 0
  }
}
