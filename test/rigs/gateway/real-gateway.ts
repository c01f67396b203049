// A gateway with real store, keys, limits, ledger, metrics and receipts; HTTP on a free port. In this process, or,
// under enclave-suite.ts, in an enclave. Effects: a directory, a port, or a host with a gateway VM.

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { LIMITS } from '../../../scripts/rigs/gateway/server.ts'
import { isEnclave, postTo, type StoredGateway } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { TextCache } from '../../../src/base/work/text-cache.ts'
import { keptReceiptsDefault } from '../../../src/contract/vm/kept-defaults.ts'
import { makeReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import { createResponseSealer } from '../../../src/inference/attestation/response-sealer.ts'
import { createOwnEncryption } from '../../../src/inference/encryption/encryption.ts'
import { createGateway, type Gateway, type GatewayLimits } from '../../../src/inference/gateway/gateway.ts'
import { createResponseMemory } from '../../../src/inference/gateway/response-memory.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { createGatewayAuthenticate } from '../../../src/inference/keys/stored-keys.ts'
import { createLimiter } from '../../../src/inference/limits/limiter.ts'
import { Budgets } from '../../../src/inference/metering/budgets.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import type { UsageRecord } from '../../../src/inference/metering/types.ts'
import { gatewayFamilies } from '../../../src/inference/metrics/gateway.ts'
import { createMetrics } from '../../../src/inference/metrics/requests.ts'
import type { UpstreamTarget } from '../../../src/inference/upstream/target.ts'
import { type DirectoryStore, openStore } from '../../../src/store/db.ts'
import {
  insertGatewayKey,
  type NewGatewayKey,
  revokeGatewayKey,
} from '../../../src/store/directory/gateway-key.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { sumUsage } from '../../../src/store/directory/usage/usage.query.ts'

export type RealGateway = StoredGateway & {
  readonly post: (path: string, body: unknown, init: RequestInit & { readonly key: string }) => Promise<Response>
}

const organizationId = 'o1'
const keyDefaults = { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000, concurrencyMax: 65_536 }

export async function startRealGateway(
  upstreams: readonly UpstreamTarget[],
  limits: Partial<GatewayLimits> = {},
): Promise<RealGateway> {
  if (!isEnclave) return startRealHostGateway(upstreams, limits)
  const { startEnclaveGateway } = await import('../../../scripts/rigs/enclave/gateway.ts')
  const { padsStreams, ...settings } = { ...LIMITS, ...limits }
  const gateway = await startEnclaveGateway({
    upstreams,
    settings: {
      ...settings,
      padStreams: padsStreams ? 'on' : 'off',
      connectionIdleSeconds: 120,
      keyRequestsPerMinute: keyDefaults.requestsPerMinute,
      keyTokensPerMinute: keyDefaults.tokensPerMinute,
      keyConcurrencyMax: keyDefaults.concurrencyMax,
    },
  })
  return Object.assign(gateway, { post: postWith(gateway.url) })
}

/** Records that a gateway of a test serves from: those of a host that has others, too. */
type Records = {
  readonly store: DirectoryStore
  readonly metering: Metering | null
  /** Default: the system's. */
  readonly clock?: Clock
  readonly close: () => void
}

function ownRecords(dir: string): Records {
  const { directory: store, close } = openStore(join(dir, 'strongroom.db'))
  insertOrganization(store.db, { id: organizationId, slug: 'acme', nowMs: 1 })
  insertOrganization(store.db, { id: 'o2', slug: 'globex', nowMs: 1 })
  return { store, metering: null, close }
}

/** In this process whatever runs the tests. */
export function startRealHostGateway(
  upstreams: readonly UpstreamTarget[],
  limits: Partial<GatewayLimits> = {},
  given: Records | null = null,
): RealGateway & { readonly gateway: Gateway } {
  const dir = mkdtempSync(join(tmpdir(), 'strongroom-gateway-'))
  const { store, close, ...shared } = given ?? ownRecords(dir)
  const clock = shared.clock ?? systemClock
  const lines: string[] = []
  const records: UsageRecord[] = []
  const log = createLogger({ level: 'debug', sink: line => void lines.push(line), nowMs: clock.nowMs })
  const limiter = createLimiter(clock)
  const keys = makeReceiptKeys(systemRandom)
  const encryption = createOwnEncryption({ keys, random: systemRandom, clock })
  const metering = shared.metering ?? new Metering({ store, clock, log, cost: () => 0n })
  const metrics = createMetrics({
    models: upstreams.flatMap(upstream => upstream.models),
    upstreams: upstreams.map(upstream => upstream.name),
    otherFamilies: () =>
      gatewayFamilies({
        attested: [],
        metering: metering.counts(),
        running: limiter.running(),
        encryption: encryption.counts,
        relays: null,
        ...gateway.view(),
      }),
  })
  const gateway = createGateway({
    authenticate: createGatewayAuthenticate({ db: store.db, clock, log, defaults: keyDefaults }),
    admit: limiter.admit,
    admitPublic: () => null,
    spent: metering,
    budgets: new Budgets({ spent: metering, cost: () => metering.cost, clock }),
    recordUsage: record => {
      records.push(record)
      metering.record(record)
    },
    observe: metrics.observe,
    beginTrace: null,
    inside: new Set(),
    sealer: createResponseSealer({ keys, clock, random: systemRandom, inside: new Set() }),
    keptReceipts: new TextCache({ clock, limits: keptReceiptsDefault }),
    responses: createResponseMemory(clock),
    attestation: null,
    workload: null,
    encryption,
    openapi: '{}',
    cost: () => metering.cost,
    clock,
    random: systemRandom,
    log,
    upstreams,
    limits: { ...LIMITS, ...limits },
  })
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    idleTimeout: 120,
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
    log: async () => lines,
    metrics: async () => metrics.render(),
    publicKeys: async () => keys.publicKeys,
    addKey: async changes => addKey(store, changes),
    revokeKey: async key => {
      const [, prefix = ''] = key.split('_')
      revokeGatewayKey(store.db, { prefix, nowMs: clock.nowMs() })
    },
    post: postWith(url),
    usage: async () => {
      metering.flush()
      return sumUsage(store.db, { organizationId, startMs: 0, endMs: Number.MAX_SAFE_INTEGER })
    },
    traces: async () =>
      new Map<string, Uint8Array | string>([
        ...readdirSync(dir).map(name => [name, readFileSync(join(dir, name))] as const),
        ['log', lines.join('\n')],
        ['metrics', metrics.render()],
      ]),
    [Symbol.asyncDispose]: async () => {
      gateway.close()
      await server.stop(true)
      metering.stop()
      close()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

function postWith(url: string): RealGateway['post'] {
  return (path, body, { key, ...init }) => postTo(url + path, key, body, init)
}

function addKey({ db }: DirectoryStore, changes: Partial<NewGatewayKey> = {}): string {
  const { key, prefix, secretSha256 } = mintGatewayKey(systemRandom)
  insertGatewayKey(db, {
    organizationId,
    instanceId: null,
    requestsPerMinute: null,
    tokensPerMinute: null,
    concurrencyMax: null,
    expiresAtMs: null,
    nowMs: systemClock.nowMs(),
    ...changes,
    prefix,
    secretSha256,
  })
  return key
}
