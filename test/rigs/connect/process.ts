// `strongroom connect` as a process before a gateway with simulated evidence. Effects: a process, files, a free port.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { programArgv } from '../program.ts'

/** The document that --json prints when it is ready. */
export type ReadyDocument = {
  readonly ready: true
  readonly gateway: string
  readonly anthropic_base_url: string
  readonly openai_base_url: string
  readonly model: string
  readonly verdict: {
    readonly ok: boolean
    readonly simulated: boolean
    readonly models: unknown
    readonly image: unknown
  }
  readonly clients: Readonly<
    Record<string, { readonly env: Record<string, string>; readonly file: { path: string; text: string } | null }>
  >
}

export type Connected = AsyncDisposable & {
  readonly origin: string
  readonly ready: ReadyDocument
  readonly stdout: () => string
  readonly stderr: () => string
  readonly signal: (signal: 'SIGINT' | 'SIGTERM') => void
  /** Resolves with the exit code. */
  readonly exited: Promise<number>
}

export type PolicyFiles = Disposable & {
  readonly file: (name: string, content: string | Uint8Array) => string
}

export function policyFiles(): PolicyFiles {
  const directory = mkdtempSync(join(tmpdir(), 'srt-connect-'))
  return {
    file: (name, content) => {
      const path = join(directory, name)
      writeFileSync(path, content)
      return path
    },
    [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }),
  }
}

/** Options of a relying party that expects exactly the gateways that this bench launches. */
export function benchOptions(bench: EnclaveBench, vmId: string, { file }: PolicyFiles): string[] {
  const { measurement } = JSON.parse(bench.engine.launch(vmId).document)
  const policy = {
    ...encodePolicy({ ...strictPolicy(), idKeyDigest: bench.host.operatorKey }),
    measurements: [measurement],
  }
  return [
    ...['--policy', file('gateway.json', JSON.stringify(policy)), '--ca', file('ca.pem', bench.caPem)],
    ...['--trust-simulated-root', file('root.pem', bench.host.rootPem)],
    ...bench.workload.upstreams.flatMap(({ name }) => ['--allow-outside', name]),
  ]
}

/** `variables`: beside PATH, the environment. */
export function spawnConnect(url: string, options: readonly string[], variables: Record<string, string> = {}) {
  return Bun.spawn([...programArgv, 'connect', url, '--listen', '127.0.0.1:0', ...options], {
    env: { PATH: process.env.PATH ?? '', ...variables },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
}

/** Rejects with what the program printed if it ends before it is ready. */
export async function startConnect(url: string, options: readonly string[]): Promise<Connected> {
  const child = spawnConnect(url, [...options, '--json'])
  const printed = { stdout: '', stderr: '' }
  const isReady = Promise.withResolvers<void>()
  const read = async (name: 'stdout' | 'stderr') => {
    const decoder = new TextDecoder()
    for await (const bytes of child[name]) {
      printed[name] += decoder.decode(bytes, { stream: true })
      if (printed.stdout.includes('\n')) isReady.resolve()
    }
  }
  const ended = Promise.all([read('stdout'), read('stderr')]).then(() => child.exited)
  await Promise.race([isReady.promise, ended])
  if (!printed.stdout.startsWith('{"ready":true')) {
    child.kill('SIGKILL')
    throw new Error(`not ready: ${printed.stdout}${printed.stderr}`)
  }
  const ready: ReadyDocument = JSON.parse(printed.stdout)
  return {
    ...{ origin: ready.anthropic_base_url, ready, stdout: () => printed.stdout, stderr: () => printed.stderr },
    signal: signal => child.kill(signal),
    exited: ended,
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}
