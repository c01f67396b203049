// A whole gateway for tests over real HTTP on a free port: in this process with narrow fakes for keys and ledger, or,
// under enclave-suite.ts, in an enclave. Effects: a port, or a host with a gateway VM.

import { afterEach, beforeEach } from 'bun:test'
import { systemClock } from '../../../src/base/clock.ts'
import { Fault } from '../../../src/base/fault.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { TextCache } from '../../../src/base/work/text-cache.ts'
import { NO_RULES } from '../../../src/contract/key-rules.ts'
import { keptReceiptsDefault } from '../../../src/contract/vm/kept-defaults.ts'
import { createPublicLimiter } from '../../../src/http/public-rate.ts'
import { createResponseSealer } from '../../../src/inference/attestation/response-sealer.ts'
import { createOwnEncryption } from '../../../src/inference/encryption/encryption.ts'
import {
  createGateway,
  type Gateway,
  type GatewayDeps,
  type GatewayLimits,
} from '../../../src/inference/gateway/gateway.ts'
import { createResponseMemory } from '../../../src/inference/gateway/response-memory.ts'
import { createLimiter } from '../../../src/inference/limits/limiter.ts'
import { Budgets, NO_BUDGETS } from '../../../src/inference/metering/budgets.ts'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import { gatewayFamilies } from '../../../src/inference/metrics/gateway.ts'
import { createMetrics } from '../../../src/inference/metrics/requests.ts'
import type { Caller } from '../../../src/inference/types.ts'
import type { UpstreamTarget } from '../../../src/inference/upstream/target.ts'
import { ehbpKeys } from './ehbp.ts'
import { SpentRecords } from './spent-records.ts'
import { type AnyGateway, isEnclave, postTo } from './test-gateway.ts'
import { startUpstream, type TestUpstream } from './upstream-server.ts'

export const MODEL = 'tiny'
const SECRET = '0123456789abcdefghijklmnopqrstuv'
export const CALLER: Caller = {
  keyPrefix: 'abcdefgh',
  keyDigest: 'ab'.repeat(32),
  organizationId: 'o1',
  instanceId: null,
  madeBy: 'host',
  requestsPerMinute: 1000,
  tokensPerMinute: 1_000_000,
  concurrencyMax: 1000,
  rules: NO_RULES,
  budgets: NO_BUDGETS,
}
export const KEY = `gw_${CALLER.keyPrefix}_${SECRET}`

/** None of them is reached because this process, in which all sides run, stood still for a while. */
export const LIMITS: GatewayLimits = {
  bodyBytesMax: 65_536,
  bodyTimeoutMs: 60_000,
  connectTimeoutMs: 60_000,
  firstByteTimeoutMs: 60_000,
  idleTimeoutMs: 60_000,
  stallTimeoutMs: 60_000,
  eventBytesMax: 262_144,
  responseBytesMax: 524_288,
  queueMax: 100,
  queueTimeoutMs: 60_000,
  ejectFailures: 3,
  ejectMs: 60_000,
  refusesUnknownFields: false,
  responseReceipts: 'on-request',
  ownedBy: 'strongroom',
  padsStreams: false,
}

/** For what comes after a silence. Longer than a busy machine stops a process that has something to read. */
export const IMPATIENT = {
  bodyTimeoutMs: 300,
  connectTimeoutMs: 500,
  /** Below the second after which an early head leaves, so that a refusal has a status. */
  firstByteTimeoutMs: 800,
  idleTimeoutMs: 700,
} satisfies Partial<GatewayLimits>

export type TestGateway = AnyGateway & {
  /** With `KEY`. */
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
    embeddingModels: [],
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

/** Options for both places. */
type Options = {
  readonly limits?: Partial<GatewayLimits>
  /** Limits of `KEY`. */
  readonly caller?: Partial<
    Pick<Caller, 'requestsPerMinute' | 'tokensPerMinute' | 'concurrencyMax' | 'instanceId' | 'rules' | 'budgets'>
  >
  readonly publicRequestsPerMinute?: number
  /** In place of its own parts: a test that gives any `needsHost`. */
  readonly host?: Partial<Omit<GatewayDeps, 'limits' | 'upstreams'>>
}

export async function startGateway(upstreams: readonly UpstreamTarget[], options: Options = {}): Promise<TestGateway> {
  if (!isEnclave) return startHostGateway(upstreams, options)
  if (options.host !== undefined) throw new Error(`no enclave takes ${Object.keys(options.host)}: needsHost`)
  const { startEnclaveGateway } = await import('../enclave/gateway.ts')
  const { padsStreams, ...limits } = { ...LIMITS, ...options.limits }
  const { keyPrefix: prefix, rules, budgets, ...caller } = { ...CALLER, ...options.caller }
  const { publicRequestsPerMinute = 100_000 } = options
  const gateway = await startEnclaveGateway({
    upstreams,
    settings: { ...limits, padStreams: padsStreams ? 'on' : 'off', publicRequestsPerMinute },
    key: {
      ...caller,
      ...rules,
      budgetNanoUsd: budgets.key.nanoUsd,
      budgetTokens: budgets.key.tokens,
      shortBudgets: budgets.endUser === undefined ? null : { endUser: budgets.endUser },
      prefix,
      secretSha256: new Uint8Array(Bun.CryptoHasher.hash('sha256', SECRET)),
    },
  })
  return Object.assign(gateway, sendersTo(gateway.url))
}

/** In this process whatever runs the tests, so that they may have a look inside. */
export function startHostGateway(
  upstreams: readonly UpstreamTarget[],
  options: Options = {},
): TestGateway & { readonly gateway: Gateway } {
  const records: UsageRecord[] = []
  const spent = new SpentRecords()
  const log: string[] = []
  const clock = options.host?.clock ?? systemClock
  const encryption = createOwnEncryption({ keys: ehbpKeys, random: systemRandom, clock })
  const limiter = createLimiter(clock)
  const { publicRequestsPerMinute = 100_000 } = options
  const metrics = createMetrics({
    models: upstreams.flatMap(upstream => upstream.models),
    upstreams: upstreams.map(upstream => upstream.name),
    otherFamilies: () =>
      gatewayFamilies({
        attested: [],
        metering: { written: records.length, lost: 0, waiting: 0 },
        running: limiter.running(),
        encryption: encryption.counts,
        relays: null,
        ...gateway.view(),
      }),
  })
  const gateway = createGateway({
    authenticate: headers => {
      if (headers.get('authorization') !== `Bearer ${KEY}`) {
        throw new Fault('unauthenticated', 'The API key is missing or invalid.')
      }
      return { ...CALLER, ...options.caller }
    },
    admit: limiter.admit,
    admitPublic: createPublicLimiter({ clock, requestsPerMinute: publicRequestsPerMinute }).admitPublic,
    recordUsage: record => {
      records.push(record)
      spent.add(record)
    },
    spent,
    budgets: new Budgets({ spent, cost: () => () => 7n, clock }),
    observe: metrics.observe,
    beginTrace: null,
    inside: new Set(),
    sealer: createResponseSealer({ keys: ehbpKeys, clock, random: systemRandom, inside: new Set() }),
    keptReceipts: new TextCache({ clock, limits: keptReceiptsDefault }),
    responses: createResponseMemory(clock),
    attestation: null,
    workload: null,
    encryption,
    openapi: '{"openapi":"3.1.0"}',
    cost: () => () => 0n,
    clock,
    random: systemRandom,
    log: createLogger({ level: 'debug', sink: line => void log.push(line), nowMs: Date.now }),
    ...options.host,
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
  return {
    url,
    pid: process.pid,
    models: [...new Set(upstreams.flatMap(upstream => upstream.models))],
    gateway,
    records: async () => records,
    log: async () => log,
    metrics: async () => metrics.render(),
    publicKeys: async () => ehbpKeys.publicKeys,
    ...sendersTo(url),
    [Symbol.asyncDispose]: async () => {
      gateway.close()
      await server.stop(true)
    },
  }
}

function sendersTo(url: string): Pick<TestGateway, 'post' | 'chat'> {
  const post: TestGateway['post'] = (path, body, init) => postTo(url + path, KEY, body, init)
  return { post, chat: (body = {}, init = {}) => post('/v1/chat/completions', chatBody(body), init) }
}

/** Starts a well-behaved upstream, and a gateway for it, before each test of a file; both end with the test. */
export function eachWithGateway(take: (upstream: TestUpstream, gateway: TestGateway) => void): void {
  let undo = new AsyncDisposableStack()
  beforeEach(async () => {
    undo = new AsyncDisposableStack()
    const upstream = await startUpstream()
    undo.defer(upstream.stop)
    take(upstream, undo.use(await startGateway([target(upstream.url)])))
  })
  afterEach(() => undo.disposeAsync())
}

export function chatBody(more: Record<string, unknown> = {}): Record<string, unknown> {
  return { model: MODEL, messages: [{ role: 'user', content: 'Hello' }], ...more }
}
