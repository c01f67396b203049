// Goal: llama-server from our own image, in its sandbox, with our own model, behaves like the stand-in of
// worker.test.ts.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { tinyModel } from '../../../scripts/model/tiny-model.ts'
import { buildCachedImage } from '../../../scripts/rigs/build/image-build.ts'
import { descendants } from '../../../scripts/rigs/gateway/appliance-gateway.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { startSandboxed } from '../../../src/host/sandbox.ts'
import { createWorkloads, type Workloads } from '../../../src/inference/attestation/workloads.ts'
import { recordGolden } from '../../../src/inference/worker/golden-record.ts'
import { createWorkerRoot, readWorkerImage } from '../../../src/inference/worker/root.ts'
import { BuiltInWorker, type KnownModel, workerTiming } from '../../../src/inference/worker/worker.ts'
import { removeForeignTree } from '../../../src/linux/tree.ts'
import { settings as plainSettings } from '../../rigs/gateway/worker-bench.ts'

const missing =
  skipUnless(process.getuid?.() === 0, 'needs root to build an image and to become another user') ||
  skipUnless(Bun.which('bwrap') !== null, 'needs bubblewrap')

const nobody = { uid: 65534, gid: 65534 }
const imageTimeoutMs = 300_000
const timeoutMs = 300_000
const rootTimeoutMs = 120_000
let dir = ''
let image = ''
/** Unpacked once, for tests that are not about it. */
let root: ReturnType<typeof createWorkerRoot>

beforeAll(async () => {
  if (missing) return
  dir = mkdtempSync('/tmp/worker-real-')
  chmodSync(dir, 0o711)
  writeFileSync(join(dir, 'model.gguf'), tinyModel())
  chmodSync(join(dir, 'model.gguf'), 0o644)
  image = await buildCachedImage('inference')
  root = createWorkerRoot({ imageDir: image, target: join(dir, 'shared-root/root'), timeoutMs: rootTimeoutMs })
}, imageTimeoutMs)
afterAll(() => rmSync(dir, { recursive: true, force: true }))

type Bench = AsyncDisposable & {
  readonly worker: BuiltInWorker
  readonly workloads: Workloads
  readonly stateDir: string
  /** Pauses before restarts. */
  readonly pausesMs: number[]
}

const executableDigest = new Uint8Array(32).fill(1)
let states = 0
async function bench(
  options: {
    model?: string
    memoryMiBMax?: number
    known?: KnownModel
    root?: ReturnType<typeof createWorkerRoot>
  } = {},
): Promise<Bench> {
  states += 1
  const stateDir = join(dir, `state-${states}`)
  mkdirSync(stateDir, { mode: 0o711 })
  const settings = {
    ...plainSettings(dir),
    model_file: options.model ?? join(dir, 'model.gguf'),
    image_dir: image,
    memory_mib_max: options.memoryMiBMax ?? 1024,
    start_timeout_ms: 120_000,
  }
  const workloads = await createWorkloads({
    executableDigest,
    command: ['strongroom', 'serve'],
    hasWorker: true,
    allowlist: null,
    log: silentLogger,
  })
  const pausesMs: number[] = []
  const worker = new BuiltInWorker({
    settings,
    stateDir,
    root: options.root ?? root,
    user: () => nobody,
    removeTree: removeForeignTree,
    startSandboxed,
    openModel: async () => options.known ?? null,
    admit: workloads.admit,
    clock: {
      ...systemClock,
      sleep: (ms, signal) => {
        if (ms !== workerTiming.pollMs && ms !== workerTiming.healthIntervalMs) pausesMs.push(ms)
        return systemClock.sleep(ms, signal)
      },
    },
    log: silentLogger,
    timing: workerTiming,
    onReady: () => {},
  })
  return { worker, workloads, stateDir, pausesMs, [Symbol.asyncDispose]: () => worker.stop() }
}

async function ask({ worker }: Bench, path: string, body: Record<string, unknown>) {
  const { baseUrl, unix } = worker.upstream
  const response = await fetch(`${baseUrl}${path}`, { unix, method: 'POST', body: JSON.stringify(body) })
  return { status: response.status, text: await response.text() }
}

/** Command lines of all processes below this one. */
function commandsBelow(pid: number): string[][] {
  return descendants(pid).map(descendant =>
    readFileSync(`/proc/${descendant.pid}/cmdline`, 'utf8').split('\0').slice(0, -1),
  )
}

/** Recorded on another processor; `strongroom model add` gives the same here. */
const golden = { prompt: 'a a a a a a a a', maxTokens: 4, expected: ' and and and and' }
const knownWith = (expected: string) => ({
  name: 'tiny',
  fileSha256: toHex(new Uint8Array(Bun.CryptoHasher.hash('sha256', tinyModel()))),
  golden: { ...golden, expected },
})

describe('the root', () => {
  test.skipIf(missing)(
    'nothing of an earlier root is left',
    async () => {
      // Goal: files that were left or changed in the unpacked root are never run. It comes first:
      // the root is unpacked once.
      const program = 'shared-root/root/usr/bin/llama-server'
      mkdirSync(join(dir, 'shared-root/root/usr/bin'), { recursive: true })
      writeFileSync(join(dir, program), '#!/bin/sh\nexit 0\n', { mode: 0o755 })
      writeFileSync(join(dir, 'shared-root/root/etc'), 'left over')
      await using item = await bench()
      item.worker.start()
      expect((await item.worker.settled).kind).toBe('ready')
      expect(readFileSync(join(dir, program)).subarray(1, 4).toString()).toBe('ELF')
    },
    timeoutMs,
  )

  test.skipIf(missing)(
    'one changed bit of the image stops the start',
    async () => {
      // Goal: what runs is what the root hash stands for.
      const changed = join(dir, 'changed')
      mkdirSync(changed)
      cpSync(join(image, 'manifest.json'), join(changed, 'manifest.json'))
      const bytes = readFileSync(join(image, 'root.img'))
      const at = 1_000_000
      bytes[at] = (bytes[at] ?? 0) ^ 1
      writeFileSync(join(changed, 'root.img'), bytes)
      const target = join(dir, 'changed-root/root')
      const options = { imageDir: changed, target, timeoutMs: rootTimeoutMs }
      await using item = await bench({ root: createWorkerRoot(options) })
      item.worker.start()
      const state = await item.worker.settled
      expect(state.kind === 'failed' ? state.message : '').toContain(
        `the manifest lists ${readWorkerImage(image).rootHash}`,
      )
      expect(existsSync(dirname(target))).toBe(false)
      expect(() => item.workloads.describe()).toThrow('inference-worker has not been admitted yet')
    },
    timeoutMs,
  )
})

describe('llama-server', () => {
  test.skipIf(missing)(
    'answers, is attested by its root hash, and comes back after a kill',
    async () => {
      // Goal: a caller of the built-in upstream gets completions with a count of tokens, before and after a crash. With
      // the golden answer that was recorded, the model serves wherever it runs, and recording is repeatable.
      await using item = await bench({ known: knownWith(golden.expected) })
      item.worker.start()
      const state = await item.worker.settled
      expect(state.kind).toBe('ready')
      const asking = { socket: item.worker.upstream.unix, timeoutMs: 60_000, signal: new AbortController().signal }
      expect(await recordGolden(asking)).toEqual(golden)
      expect(await recordGolden(asking)).toEqual(golden)
      const prompt = { prompt: 'hello the world', max_tokens: 8, temperature: 0, ignore_eos: true }
      const first = await ask(item, '/completions', prompt)
      expect(first.status).toBe(200)
      expect(JSON.parse(first.text).usage).toMatchObject({ completion_tokens: 8 })
      const chat = { messages: [{ role: 'user', content: 'hello' }], max_tokens: 4, stream: true, temperature: 0 }
      const stream = await ask(item, '/chat/completions', chat)
      expect(stream.text.trimEnd()).toEndWith('data: [DONE]')

      const described = item.workloads.describe().workloads.find(row => row.workload === 'inference-worker')
      expect(toHex(described?.imageDigest ?? new Uint8Array())).toBe(readWorkerImage(image).rootHash)
      const modelDigest = Bun.CryptoHasher.hash('sha256', readFileSync(join(dir, 'model.gguf')), 'hex')
      expect(described?.command).toContain(`/model/sha256-${modelDigest}.gguf`)
      // The running command is the described command.
      expect(commandsBelow(state.kind === 'ready' ? state.pid : 0)).toContainEqual([...(described?.command ?? [])])

      const pid = state.kind === 'ready' ? state.pid : 0
      const status = readFileSync(`/proc/${pid}/status`, 'utf8')
      expect(/^Uid:\s+(\d+)/m.exec(status)?.[1]).toBe(String(nobody.uid))
      expect(statSync(dirname(item.worker.upstream.unix))).toMatchObject({ uid: 0, mode: 0o40700 })
      process.kill(pid, 'SIGKILL')
      const isBack = () => {
        const now = item.worker.state
        return now.kind === 'ready' && now.pid !== pid
      }
      await until('the second life', 60_000, isBack)
      expect(JSON.parse((await ask(item, '/completions', prompt)).text).choices).toEqual(JSON.parse(first.text).choices)

      await item.worker.stop()
      expect(existsSync(item.worker.upstream.unix)).toBe(false)
      await expect(ask(item, '/completions', prompt)).rejects.toThrow()
    },
    timeoutMs,
  )

  test.skipIf(missing)(
    'cannot load what is no model, and says so',
    async () => {
      // Goal: the error distinguishes a wrong file from a missing one, by the operator's name for it.
      const model = join(dir, 'wrong.gguf')
      writeFileSync(model, 'this is no model\n')
      chmodSync(model, 0o644)
      await using item = await bench({ model })
      item.worker.start()
      const state = await item.worker.settled
      expect(state.kind).toBe('failed')
      const message = state.kind === 'failed' ? state.message : ''
      expect(message).toStartWith(`model ${model}: the worker ended with exit code 1`)
      expect(message).toContain('failed to load model')
      await expect(ask(item, '/completions', { prompt: 'a' })).rejects.toThrow()
    },
    timeoutMs,
  )

  test.skipIf(missing)(
    'ends when it wants more memory than it may have, and is tried again later and later',
    async () => {
      // Goal: a model that takes too much costs the worker, not the host, and the operator reads which bound it was.
      await using item = await bench({ memoryMiBMax: 4 })
      item.worker.start()
      const state = await item.worker.settled
      const message = state.kind === 'failed' ? state.message : ''
      expect(message).toMatch(/ended with exit code \d+ \(its memory is bounded to 4 MiB by memory_mib_max\)/)
      await until('a second failure', 60_000, () => item.pausesMs.length >= 2)
      expect(item.pausesMs.slice(0, 2)).toEqual([500, 1000])
      expect(item.worker.state.kind).not.toBe('ready')
    },
    timeoutMs,
  )

  test.skipIf(missing)(
    'a model that its user may not read is said',
    async () => {
      // Goal: the commonest mistake with a model file is named.
      const model = join(dir, 'private.gguf')
      writeFileSync(model, tinyModel(), { mode: 0o600 })
      await using item = await bench({ model })
      item.worker.start()
      const state = await item.worker.settled
      expect(state.kind === 'failed' ? state.message : '').toContain('Permission denied')
    },
    timeoutMs,
  )
})

describe('the golden answer', () => {
  test.skipIf(missing)(
    'that is another keeps it from serving, and says so with digests',
    async () => {
      // Goal: an engine that computes something else is found before a client meets it.
      const wrong = ' or or or or'
      await using item = await bench({ known: knownWith(wrong) })
      item.worker.start()
      const state = await item.worker.settled
      const message = state.kind === 'failed' ? state.message : ''
      const digest = (text: string) => new Bun.CryptoHasher('sha256').update(text).digest('hex')
      const problem = `SHA-256 ${digest(wrong)} is expected, ${digest(golden.expected)} is the SHA-256 of its answer`
      expect(message).toStartWith(`model tiny: golden answer: ${problem}`)
      await until('a second failure', 60_000, () => item.pausesMs.length >= 2)
      expect(item.pausesMs.slice(0, 2)).toEqual([500, 1000])
      expect(item.worker.state.kind).not.toBe('ready')
    },
    timeoutMs,
  )
})
