// Service B of a whole appliance for end-to-end tests: its built-in worker's configuration, and a client with its own
// key. Effects: files in a temporary directory, requests.

import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tinyModel } from '../../model/tiny-model.ts'
import type { Appliance } from '../appliance.ts'
import { buildCachedImage } from '../build/image-build.ts'
import { until } from '../until.ts'

export const gatewayUrl = 'https://127.0.0.1:8442'
export const workerModel = 'strongroom-tiny'
/** Dollars per million tokens. */
export const PRICE = { prompt: 3, completion: 7 } as const

/** A model file that the worker's user can read, in a directory of its own. */
export function createModelFile(): Disposable & { readonly path: string } {
  const directory = mkdtempSync(join(tmpdir(), 'srt-model-'))
  chmodSync(directory, 0o711)
  const path = join(directory, 'model.gguf')
  writeFileSync(path, tinyModel())
  chmodSync(path, 0o644)
  return { path, [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }) }
}

/** Tables for `createAppliance`: the built-in worker with this model, priced, and room for tests that ask often. */
export async function gatewayTables(
  modelFile: string,
  placement: 'vm' | 'host' = 'host',
  modelDisk = '',
): Promise<string> {
  return [
    '[inference]',
    `placement = "${placement}"`,
    'public_requests_per_minute = 100000',
    'eject_ms = 500',
    'key_requests_per_minute = 100000',
    'key_tokens_per_minute = 100000000',
    '[inference.worker]',
    `model_file = ${JSON.stringify(modelFile)}`,
    `model_disk = ${JSON.stringify(modelDisk)}`,
    `image_dir = ${JSON.stringify(await buildCachedImage('inference'))}`,
    '[[inference.prices]]',
    `model = "${workerModel}"`,
    `prompt_usd_per_million = "${PRICE.prompt}.00"`,
    `completion_usd_per_million = "${PRICE.completion}.00"`,
    '',
  ].join('\n')
}

export function caOf(appliance: Pick<Appliance, 'stateDir'>): string {
  return readFileSync(join(appliance.stateDir, 'ca/ca.pem'), 'utf8')
}

export type GatewayClient = {
  readonly key: string
  readonly get: (path: string, headers?: Record<string, string>) => Promise<Response>
  readonly post: (path: string, body: unknown, init?: RequestInit) => Promise<Response>
}

/** With any key; "" sends none. */
export function gatewayClient(appliance: Pick<Appliance, 'stateDir'>, key: string): GatewayClient {
  const tls = { ca: caOf(appliance) }
  const authorization: Record<string, string> = key === '' ? {} : { authorization: `Bearer ${key}` }
  const timeoutMs = 60_000
  return {
    key,
    get: (path, headers = {}) =>
      fetch(gatewayUrl + path, {
        tls,
        headers: { ...authorization, ...headers },
        signal: AbortSignal.timeout(timeoutMs),
      }),
    post: (path, body, init = {}) =>
      fetch(gatewayUrl + path, {
        method: 'POST',
        body: typeof body === 'string' ? body : JSON.stringify(body),
        signal: AbortSignal.timeout(timeoutMs),
        ...init,
        tls,
        headers: { ...authorization, 'content-type': 'application/json', ...init.headers },
      }),
  }
}

/** Makes a key through the operator's command line. */
export async function createGatewayClient(
  appliance: Pick<Appliance, 'stateDir' | 'admin'>,
  slug: string,
): Promise<GatewayClient> {
  const { key } = await appliance.admin<{ key: string }>('gateway', 'key', 'create', slug)
  return gatewayClient(appliance, key)
}

/** Waits until a small completion gets a 200; after a failure the router leaves its upstream alone for a while. */
export async function workerResponds(client: GatewayClient): Promise<void> {
  await until('the built-in worker responds', 120_000, async () => {
    const response = await client.post('/v1/completions', { model: workerModel, prompt: 'hi', max_tokens: 1 })
    await response.text()
    return response.status === 200
  })
}

/** All processes below this one, by their parents. */
export function descendants(pid: number): { readonly pid: number; readonly name: string }[] {
  const children = new Map<number, { pid: number; name: string }[]>()
  // Names first: a process may end while the others are read.
  for (const entry of readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    const found = /^(\d+) \((.*)\) \S (\d+)/s.exec(readOrNothing(`/proc/${entry}/stat`))
    if (found === null) continue
    const [, own = '', name = '', parent = ''] = found
    const siblings = children.get(Number(parent)) ?? []
    children.set(Number(parent), [...siblings, { pid: Number(own), name }])
  }
  const below = (of: number): { pid: number; name: string }[] =>
    (children.get(of) ?? []).flatMap(child => [child, ...below(child.pid)])
  return below(pid)
}

function readOrNothing(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
