// A gateway with everything behind it real: store, keys, limits, ledger, metrics, receipts; HTTP on a free port. Effects: a directory, a port.

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { createLogger } from '../../src/base/log.ts'
import { makeReceiptKeys, type ReceiptKeys } from '../../src/inference/attestation/receipt-keys.ts'
import { createResponseSealer } from '../../src/inference/attestation/response-sealer.ts'
import { createEncryption } from '../../src/inference/encryption/encryption.ts'
import { createGateway, type Gateway, type GatewayDeps } from '../../src/inference/gateway/gateway.ts'
import { createGatewayAuthenticate, mintGatewayKey } from '../../src/inference/keys/authenticate.ts'
import { createLimiter, type Limiter } from '../../src/inference/limits/limiter.ts'
import { Metering } from '../../src/inference/metering/ledger.ts'
import { gatewayFamilies } from '../../src/inference/metrics/gateway.ts'
import { createMetrics } from '../../src/inference/metrics/requests.ts'
import type { UpstreamTarget } from '../../src/inference/upstream/target.ts'
import { type DirectoryStore, openStore } from '../../src/store/db.ts'
import { insertGatewayKey, type NewGatewayKey } from '../../src/store/directory/gateway-key.query.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { sumUsage, type UsageSum } from '../../src/store/directory/usage.query.ts'
import { LIMITS } from './gateway-server.ts'

export type RealGateway = AsyncDisposable & {
  readonly url: string
  readonly gateway: Gateway
  readonly limiter: Limiter
  readonly keys: ReceiptKeys
  readonly store: DirectoryStore
  readonly log: readonly string[]
  readonly addKey: (changes?: Partial<NewGatewayKey>) => string
  readonly post: (path: string, body: unknown, init: RequestInit & { readonly key: string }) => Promise<Response>
  /** The sum of the ledger; its queue is written first. */
  readonly usage: () => UsageSum
  readonly metrics: () => string
  /** Every file of the store, its write-ahead log included. */
  readonly fileBytes: () => Map<string, Buffer>
}

const organizationId = 'o1'

export function startRealGateway(
  upstreams: readonly UpstreamTarget[],
  limits: Partial<GatewayDeps['limits']> = {},
): RealGateway {
  const dir = mkdtempSync(join(tmpdir(), 'strongroom-gateway-'))
  const { directory: store, close } = openStore(join(dir, 'strongroom.db'))
  insertOrganization(store.db, { id: organizationId, slug: 'acme', nowMs: 1 })
  const clock = systemClock
  const lines: string[] = []
  const log = createLogger({ level: 'debug', sink: line => void lines.push(line), nowMs: clock.nowMs })
  const limiter = createLimiter(clock)
  const keys = makeReceiptKeys(systemRandom)
  const encryption = createEncryption({ keys, random: systemRandom })
  const metering = new Metering({ store, clock, log, cost: () => 0n })
  const metrics = createMetrics({
    models: upstreams.flatMap(upstream => upstream.models),
    upstreams: upstreams.map(upstream => upstream.name),
    otherFamilies: () =>
      gatewayFamilies({
        metering: metering.counts(),
        running: limiter.running(),
        encryption: encryption.counts,
        ...gateway.view(),
      }),
  })
  const defaults = { requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000, concurrencyMax: 65_536 }
  const gateway = createGateway({
    authenticate: createGatewayAuthenticate({ db: store.db, clock, log, defaults }),
    admit: limiter.admit,
    admitPublic: () => null,
    recordUsage: record => metering.record(record),
    observe: metrics.observe,
    sealer: createResponseSealer({ keys, clock, inside: new Set() }),
    responseReceipts: 'on-request',
    attestation: null,
    workload: null,
    encryption,
    openapi: '{}',
    ownedBy: 'strongroom',
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
    gateway,
    limiter,
    keys,
    store,
    log: lines,
    addKey: changes => addKey(store, changes),
    post: (path, body, { key, ...init }) =>
      fetch(url + path, {
        method: 'POST',
        body: typeof body === 'string' ? body : JSON.stringify(body),
        ...init,
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...init.headers },
      }),
    usage: () => {
      metering.flush()
      return sumUsage(store.db, { organizationId, startMs: 0, endMs: Number.MAX_SAFE_INTEGER })
    },
    metrics: metrics.render,
    fileBytes: () => new Map(readdirSync(dir).map(name => [name, readFileSync(join(dir, name))])),
    [Symbol.asyncDispose]: async () => {
      gateway.close()
      await server.stop(true)
      metering.stop()
      close()
      rmSync(dir, { recursive: true, force: true })
    },
  }
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
