// The built-in worker (llama-server from our own image in its sandbox, with our own model) behind its own gateway.
// Effects: builds the image if it is not cached, a directory, processes, ports; needs root and bubblewrap.

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tinyModel } from '../../../scripts/model/tiny-model.ts'
import { buildCachedImage } from '../../../scripts/rigs/build/image-build.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { startSandboxed } from '../../../src/host/sandbox.ts'
import { createWorkerRoot } from '../../../src/inference/worker/root.ts'
import { BuiltInWorker, type WorkerUpstream, workerTiming } from '../../../src/inference/worker/worker.ts'
import { removeForeignTree } from '../../../src/linux/tree.ts'
import { type RealGateway, startRealHostGateway } from './real-gateway.ts'

export const realWorkerModel = 'strongroom-tiny'
export const realWorkerSlots = 4

/** The gateway's request to the engine and the response. */
export type Exchange = { readonly path: string; readonly asked: string; readonly answered: string }

export type RealWorker = AsyncDisposable & {
  readonly worker: BuiltInWorker
  /** Opens a gateway of its own before the worker. With `listens`, all that passes between them is kept. */
  readonly openGateway: (options?: { readonly listens: boolean }) => Promise<WorkerGateway>
}

export type WorkerGateway = AsyncDisposable & {
  readonly gateway: RealGateway
  readonly key: string
  /** With `listens`: every request of the gateway and the engine's response, once whole. */
  readonly exchanges: readonly Exchange[]
}

export async function openRealWorker(): Promise<RealWorker> {
  await using undo = new AsyncDisposableStack()
  const dir = mkdtempSync(join(tmpdir(), 'srt-worker-'))
  undo.defer(() => rmSync(dir, { recursive: true, force: true }))
  chmodSync(dir, 0o711)
  const stateDir = join(dir, 'state')
  mkdirSync(stateDir, { mode: 0o711 })
  const modelFile = join(dir, 'model.gguf')
  writeFileSync(modelFile, tinyModel())
  chmodSync(modelFile, 0o644)
  const imageDir = await buildCachedImage('inference')
  const worker = new BuiltInWorker({
    settings: {
      model_file: modelFile,
      model_disk: '',
      model: realWorkerModel,
      image_dir: imageDir,
      user: 'nobody',
      context_tokens: 2048,
      parallel: realWorkerSlots,
      threads: 1,
      memory_mib_max: 1024,
      start_timeout_ms: 60_000,
    },
    stateDir,
    root: createWorkerRoot({ imageDir, target: join(stateDir, 'worker-root/root'), timeoutMs: 60_000 }),
    user: () => ({ uid: 65534, gid: 65534 }),
    removeTree: removeForeignTree,
    startSandboxed,
    openModel: async () => null,
    admit: () => ({ ok: true }),
    clock: systemClock,
    log: silentLogger,
    timing: workerTiming,
    onReady: () => {},
  })
  undo.defer(() => worker.stop())
  worker.start()
  const state = await worker.settled
  if (state.kind !== 'ready') throw new Error(`the worker is ${state.kind}`)
  const running = undo.move()
  let gateways = 0
  return {
    worker,
    openGateway: ({ listens } = { listens: false }) => {
      gateways += 1
      return openGateway(worker.upstream, listens ? join(dir, `listener-${gateways}.sock`) : null)
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  }
}

/** `listener`: path of a socket between gateway and engine where their exchanges are written down; null for none. */
async function openGateway(upstream: WorkerUpstream, listener: string | null): Promise<WorkerGateway> {
  await using undo = new AsyncDisposableStack()
  const { name, models, weight, concurrencyMax, baseUrl, unix } = upstream
  const exchanges: Exchange[] = []
  if (listener !== null) undo.use(listenBetween(listener, unix, exchanges))
  const socket = listener ?? unix
  const target = { name, models, embeddingModels: [], weight, concurrencyMax, url: baseUrl, unixSocket: socket }
  const engine = { engine: 'llama-server', choicesMax: 4, contextTokens: null, content: [], remoteUrls: false } as const
  const gateway = startRealHostGateway([{ ...target, ...engine, key: null, ca: null, spkiSha256: null }], {
    firstByteTimeoutMs: 60_000,
    idleTimeoutMs: 60_000,
  })
  undo.use(gateway)
  const key = await gateway.addKey()
  const running = undo.move()
  return { gateway, key, exchanges, [Symbol.asyncDispose]: () => running.disposeAsync() }
}

function listenBetween(socket: string, engine: string, exchanges: Exchange[]): AsyncDisposable {
  const server = Bun.serve({
    unix: socket,
    fetch: async request => {
      const { pathname } = new URL(request.url)
      const asked = await request.text()
      const response = await fetch(`http://localhost${pathname}`, {
        unix: engine,
        keepalive: false,
        method: request.method,
        headers: { 'content-type': 'application/json' },
        ...(asked === '' ? {} : { body: asked }),
      })
      const answered = await response.text()
      exchanges.push({ path: pathname, asked, answered })
      const type = response.headers.get('content-type') ?? 'application/json'
      return new Response(answered, { status: response.status, headers: { 'content-type': type } })
    },
  })
  return { [Symbol.asyncDispose]: () => server.stop(true) }
}
