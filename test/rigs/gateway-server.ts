// A whole gateway for tests: real HTTP on a free port, narrow fakes for keys, limits and ledger.

import { afterEach, beforeEach } from 'bun:test'
import { systemClock } from '../../src/base/clock.ts'
import { Fault } from '../../src/base/fault.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { createLogger } from '../../src/base/log.ts'
import { createEncryption } from '../../src/inference/encryption/encryption.ts'
import { createGateway, type Gateway, type GatewayDeps } from '../../src/inference/gateway/gateway.ts'
import type { Caller, RequestObservation, Tokens, UsageRecord } from '../../src/inference/types.ts'
import type { UpstreamTarget } from '../../src/inference/upstream/target.ts'
import { ehbpKeys } from './ehbp.ts'
import { startUpstream, type TestUpstream } from './upstream-server.ts'

export const MODEL = 'tiny'
export const KEY = 'gw_abcdefgh_0123456789abcdefghijklmnopqrstuv'
export const CALLER: Caller = {
  keyPrefix: 'abcdefgh',
  organizationId: 'org1',
  instanceId: null,
  requestsPerMinute: 1000,
  tokensPerMinute: 1_000_000,
  concurrencyMax: 1000,
}

export const LIMITS: GatewayDeps['limits'] = {
  bodyBytesMax: 65_536,
  bodyTimeoutMs: 300,
  connectTimeoutMs: 500,
  firstByteTimeoutMs: 800,
  idleTimeoutMs: 300,
  stallTimeoutMs: 5_000,
  eventBytesMax: 262_144,
  responseBytesMax: 524_288,
  queueMax: 100,
  queueTimeoutMs: 5_000,
  ejectFailures: 3,
  ejectMs: 60_000,
  refusesUnknownFields: false,
  padsStreams: false,
}

export type TestGateway = AsyncDisposable & {
  readonly url: string
  readonly gateway: Gateway
  readonly records: UsageRecord[]
  readonly observations: RequestObservation[]
  /** Tokens of each settled ticket, in order. */
  readonly settled: Tokens[]
  readonly admitted: () => number
  readonly log: string[]
  readonly post: (path: string, body: unknown, init?: RequestInit) => Promise<Response>
  readonly chat: (body?: Record<string, unknown>, init?: RequestInit) => Promise<Response>
}

export function target(url: string, more: Partial<UpstreamTarget> = {}): UpstreamTarget {
  return {
    name: `up-${new URL(url).port}`,
    url,
    unixSocket: null,
    key: 'upstream-key-canary',
    models: [MODEL],
    weight: 1,
    concurrencyMax: 1000,
    engine: 'openai',
    choicesMax: 128,
    contextTokens: null,
    content: [],
    remoteUrls: false,
    ca: null,
    spkiSha256: null,
    ...more,
  }
}

type Options = Partial<Omit<GatewayDeps, 'limits' | 'upstreams'>> & { readonly limits?: Partial<GatewayDeps['limits']> }

export function startGateway(upstreams: readonly UpstreamTarget[], options: Options = {}): TestGateway {
  const records: UsageRecord[] = []
  const observations: RequestObservation[] = []
  const settled: Tokens[] = []
  const log: string[] = []
  let admitted = 0
  const gateway = createGateway({
    authenticate: headers => {
      if (headers.get('authorization') !== `Bearer ${KEY}`) {
        throw new Fault('unauthenticated', 'The API key is missing or invalid.')
      }
      return CALLER
    },
    admit: () => {
      admitted += 1
      const headers = { 'x-ratelimit-limit-requests': '1000', 'x-ratelimit-remaining-requests': '999' }
      return { ok: true, ticket: { headers, settle: tokens => void settled.push(tokens) } }
    },
    admitPublic: () => null,
    recordUsage: record => void records.push(record),
    observe: observation => void observations.push(observation),
    sealer: null,
    responseReceipts: 'on-request',
    attestation: null,
    workload: null,
    encryption: createEncryption({ keys: ehbpKeys, random: systemRandom }),
    openapi: '{"openapi":"3.1.0"}',
    ownedBy: 'strongroom',
    clock: systemClock,
    random: systemRandom,
    log: createLogger({ level: 'debug', sink: line => void log.push(line), nowMs: Date.now }),
    ...options,
    upstreams,
    limits: { ...LIMITS, ...options.limits },
  })
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    idleTimeout: 60,
    development: false,
    fetch: (request, bun) => gateway.fetch(request, () => bun.requestIP(request)?.address ?? ''),
  })
  const url = `http://127.0.0.1:${server.port}`
  const post = (path: string, body: unknown, init: RequestInit = {}) =>
    fetch(url + path, {
      method: 'POST',
      body: typeof body === 'string' ? body : JSON.stringify(body),
      ...init,
      headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', ...init.headers },
    })
  return {
    url,
    gateway,
    records,
    observations,
    settled,
    admitted: () => admitted,
    log,
    post,
    chat: (body = {}, init) => post('/v1/chat/completions', chatBody(body), init),
    [Symbol.asyncDispose]: async () => {
      gateway.close()
      await server.stop(true)
    },
  }
}

/** Starts a well-behaved upstream, and a gateway for it, before each test of a file; both end with the test. */
export function eachWithGateway(take: (upstream: TestUpstream, gateway: TestGateway) => void): void {
  let undo = new AsyncDisposableStack()
  beforeEach(async () => {
    undo = new AsyncDisposableStack()
    const upstream = await startUpstream()
    undo.defer(upstream.stop)
    take(upstream, undo.use(startGateway([target(upstream.url)])))
  })
  afterEach(() => undo.disposeAsync())
}

export function chatBody(more: Record<string, unknown> = {}): Record<string, unknown> {
  return { model: MODEL, messages: [{ role: 'user', content: 'Hello' }], ...more }
}
