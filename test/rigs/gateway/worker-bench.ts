// A stand-in for the sandboxed process: it listens on the worker's socket and behaves as a script says.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { Fault } from '../../../src/base/fault.ts'
import { createLogger } from '../../../src/base/log.ts'
import type { Admission } from '../../../src/contract/vm/allowlist.ts'
import type { Sandbox, StartSandboxed } from '../../../src/host/sandbox.ts'
import type { WorkerSettings } from '../../../src/inference/worker/command.plan.ts'
import { BuiltInWorker, type WorkerDeps } from '../../../src/inference/worker/worker.ts'
import { removeForeignTree } from '../../../src/linux/tree.ts'

/** Behaviour of the process from one start to its end. */
export type Life =
  /** `answer`: to a golden question. */
  | { readonly kind: 'healthy'; readonly answer?: () => Response | Promise<Response> }
  | { readonly kind: 'loading' }
  /** Leads health checks elsewhere. */
  | { readonly kind: 'redirects'; readonly location: string }
  /** Accepts connections and never responds. */
  | { readonly kind: 'mute' }
  | { readonly kind: 'exits'; readonly lines: readonly string[] }

export type StandIn = {
  readonly start: StartSandboxed
  readonly started: { readonly sandbox: Sandbox; readonly command: readonly string[] }[]
  /** Changes the running process's behaviour. */
  readonly become: (kind: 'healthy' | 'mute') => void
  readonly exit: (exitCode: number) => void
  /** Prints a line, as the process would. */
  readonly print: (line: string) => void
  readonly killed: () => number
}

/** The lives in order; the last repeats. */
export function standIn(lives: readonly Life[]): StandIn {
  const started: { sandbox: Sandbox; command: readonly string[] }[] = []
  let killed = 0
  let mode: Life['kind'] = 'healthy'
  let exitNow: (exitCode: number) => void = () => {}
  let print: (line: string) => void = () => {}
  const start: StartSandboxed = (sandbox, command, output) => {
    const life = lives[Math.min(started.length, lives.length - 1)] ?? { kind: 'healthy' }
    started.push({ sandbox, command })
    print = output.onLine
    const exited = Promise.withResolvers<number>()
    mode = life.kind
    const server =
      life.kind === 'exits'
        ? null
        : Bun.serve({
            unix: socketOf(sandbox),
            fetch: async request => {
              if (life.kind === 'redirects') return Response.redirect(life.location)
              if (mode === 'mute') return await new Promise<Response>(() => {})
              const isGolden = new URL(request.url).pathname === '/completion'
              if (isGolden && life.kind === 'healthy' && life.answer !== undefined) return await life.answer()
              return new Response(mode, { status: mode === 'healthy' ? 200 : 503 })
            },
          })
    exitNow = exitCode => {
      void server?.stop(true)
      exited.resolve(exitCode)
    }
    if (life.kind === 'exits') {
      for (const line of life.lines) output.onLine(line)
      exited.resolve(1)
    }
    return {
      pid: 1000 + started.length,
      exited: exited.promise,
      kill: async () => {
        killed += 1
        exitNow(137)
        await exited.promise
      },
    }
  }
  return {
    start,
    started,
    become: kind => {
      mode = kind
    },
    exit: exitCode => exitNow(exitCode),
    print: line => print(line),
    killed: () => killed,
  }
}

function socketOf(sandbox: Sandbox): string {
  const mount = sandbox.mounts.find(mount => mount.kind === 'bind' && mount.target === '/run/worker')
  if (mount?.kind !== 'bind') throw new Error('no directory for the socket')
  return join(mount.source, 'worker.sock')
}

export type Bench = AsyncDisposable & {
  readonly dir: string
  readonly worker: BuiltInWorker
  readonly logged: string[]
  /** Pauses before restarts. */
  readonly pausesMs: number[]
}

const modelText = 'model'
export const sha256 = (text: string) => new Uint8Array(Bun.CryptoHasher.hash('sha256', text))

export const settings = (dir: string): WorkerSettings => ({
  model_file: join(dir, 'model.gguf'),
  model_disk: '',
  model: 'tiny',
  image_dir: join(dir, 'image'),
  user: 'nobody',
  context_tokens: 2048,
  parallel: 4,
  threads: 2,
  memory_mib_max: 0,
  start_timeout_ms: 15_000,
})

/** SHA-256 of the bench's model file. */
export const modelDigest = sha256(modelText)

const self = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
const restartMinMs = 500

/** A worker that answers is in time on whatever machine. */
export const usualTiming = {
  pollMs: 5,
  healthIntervalMs: 10,
  healthTimeoutMs: 10_000,
  healthFailuresMax: 2,
  stableMs: 60_000,
} as const satisfies WorkerDeps['timing']
/** For workers that do not answer. */
export const hastyTiming = { ...usualTiming, healthTimeoutMs: 50 } as const

/** A worker over a stand-in with a model file, an own state directory and short times. */
export function workerBench(stand: StandIn, deps: Partial<WorkerDeps> = {}): Bench {
  const dir = mkdtempSync('/tmp/worker-test-')
  writeFileSync(join(dir, 'model.gguf'), modelText)
  const logged: string[] = []
  const pausesMs: number[] = []
  const clock: Clock = {
    ...systemClock,
    sleep: (ms, signal) => {
      if (ms >= restartMinMs) pausesMs.push(ms)
      return systemClock.sleep(Math.min(ms, 10), signal)
    },
  }
  const worker = new BuiltInWorker({
    settings: settings(dir),
    stateDir: dir,
    root: async () => ({ path: '/', digest: new Uint8Array(32).fill(1) }),
    user: () => self,
    removeTree: removeForeignTree,
    startSandboxed: stand.start,
    openModel: async () => null,
    admit: () => ({ ok: true }),
    clock,
    log: createLogger({ level: 'debug', sink: line => logged.push(line), nowMs: () => 0 }),
    onReady: () => {},
    timing: usualTiming,
    ...deps,
  })
  return {
    dir,
    worker,
    logged,
    pausesMs,
    async [Symbol.asyncDispose]() {
      await worker.stop()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

/** Admits the first start only, so that a worker that ends is not restarted. */
export function admitOnce(): () => Admission {
  let admissions = 0
  return () => {
    admissions += 1
    return admissions === 1 ? { ok: true } : { ok: false, fault: new Fault('image.invalid', 'once only') }
  }
}

/** Waits until it holds; throws after fifteen seconds. */
export async function until(condition: () => boolean, what: string): Promise<void> {
  const deadlineMs = performance.now() + 15_000
  while (!condition()) {
    if (performance.now() > deadlineMs) throw new Error(`not in time: ${what}`)
    await systemClock.sleep(5)
  }
}
