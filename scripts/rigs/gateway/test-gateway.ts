// A gateway under test in any process, and the state that its metrics and headers show. Effects: requests.

import { relative, resolve } from 'node:path'
import type { PublicKeys } from '../../../src/attest/receipt/public-keys.ts'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import type { NewGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import type { UsageSum } from '../../../src/store/directory/usage/usage.query.ts'
import { skipUnless } from '../skip.ts'

/** Set by enclave-suite.ts: the same tests run against the enclave as a process, with the host's side. */
export const isEnclave = process.env.STRONGROOM_TEST_GATEWAY === 'enclave'

/**
 * For `test.skipIf(needsHost('it sets the clock'))`: the reason why a test cannot run against a VM. Reports its
 * location, so that enclave-suite.ts finds the test.
 */
export function needsHost(reason: string): boolean {
  const [, , caller = ''] = new Error().stack?.split('\n') ?? []
  const [, path = '', line = ''] = /(\/[^():]+):(\d+):\d+\)?$/.exec(caller) ?? []
  return skipUnless(!isEnclave, `${reason} (${relative(root, path)}:${line})`)
}

const root = resolve(import.meta.dir, '../../..')

export type AnyGateway = AsyncDisposable & {
  readonly url: string
  /** The process that it runs in. */
  readonly pid: number
  /** Ids of all that it has. */
  readonly models: readonly string[]
  /** The rows of its usage so far, in the order in which they were recorded. */
  readonly records: () => Promise<readonly UsageRecord[]>
  /** The lines of its log so far. */
  readonly log: () => Promise<readonly string[]>
  /** Prometheus text. */
  readonly metrics: () => Promise<string>
  readonly publicKeys: () => Promise<PublicKeys>
}

/** With a store behind it. */
export type StoredGateway = AnyGateway & {
  /** A key that is good from now on, of organization `o1` unless it is said to be of `o2`. */
  readonly addKey: (changes?: Partial<NewGatewayKey>) => Promise<string>
  /** A key that is no good any more. */
  readonly revokeKey: (key: string) => Promise<void>
  /** The sum of the ledger. */
  readonly usage: () => Promise<UsageSum>
  /** Everything visible outside the gateway: files of the store, log, metrics; for a VM, the bytes of its channel. */
  readonly traces: () => Promise<Map<string, Uint8Array | string>>
}

/** A POST with a key, as clients send it. `body`: as it is, or as JSON. */
export function postTo(url: string, key: string, body: unknown, init: RequestInit = {}): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    body: typeof body === 'string' ? body : JSON.stringify(body),
    ...init,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...init.headers },
  })
}

type Sample = { readonly name: string; readonly labels: Readonly<Record<string, string>>; readonly value: number }

/** Samples of Prometheus text. */
export function samplesOf(text: string): Sample[] {
  return text
    .split('\n')
    .filter(line => line !== '' && !line.startsWith('#'))
    .map(line => {
      const [, name = '', labels = '', value = ''] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? []
      const pairs = [...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label = '', text = '']) => [label, text])
      return { name, labels: Object.fromEntries(pairs), value: Number(value) }
    })
}

export type GatewayView = {
  /** Requests under way, streams included. */
  readonly running: number
  /** Requests that wait for an upstream. */
  readonly waiting: number
  /** In the order of the configuration. */
  readonly targets: readonly { readonly active: number; readonly ejected: boolean }[]
  /** Requests that have ended, by status; and by code, those that have one. */
  readonly ended: Readonly<Record<string, number>>
  readonly errors: Readonly<Record<string, number>>
}

/** Current values of its metrics. */
export async function viewOf(gateway: Pick<AnyGateway, 'metrics'>): Promise<GatewayView> {
  const samples = samplesOf(await gateway.metrics())
  const of = (name: string) => samples.filter(sample => sample.name === name)
  const healthy = of('strongroom_upstream_healthy')
  const sums = (name: string, label: string) => {
    const found: Record<string, number> = {}
    for (const { labels, value } of of(name)) {
      const key = labels[label] ?? ''
      if (key !== '') found[key] = (found[key] ?? 0) + value
    }
    return found
  }
  return {
    running: of('strongroom_gateway_requests_running')[0]?.value ?? Number.NaN,
    waiting: of('strongroom_gateway_requests_queued')[0]?.value ?? Number.NaN,
    targets: of('strongroom_upstream_requests_running').map(({ value }, at) => ({
      active: value,
      ejected: healthy[at]?.value === 0,
    })),
    ended: sums('strongroom_gateway_requests_total', 'http_response_status_code'),
    errors: sums('gen_ai_server_request_duration_seconds_count', 'error_type'),
  }
}

export type Charged = { readonly requests: number; readonly tokens: number }

/** How often a gateway was asked for its headers. */
const lookCounts = new WeakMap<object, number>()

/**
 * A key's charges within the last minute, by the headers of another request: admitted requests without such looks, and
 * their tokens once they have ended.
 */
export async function chargedTo(gateway: Pick<AnyGateway, 'url'>, key: string): Promise<Charged> {
  const looks = (lookCounts.get(gateway) ?? 0) + 1
  lookCounts.set(gateway, looks)
  const answer = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })
  const of = (name: string) => Number(answer.headers.get(`x-ratelimit-${name}`))
  return {
    requests: of('limit-requests') - of('remaining-requests') - looks,
    tokens: of('limit-tokens') - of('remaining-tokens'),
  }
}
