// Service A as its clients meet it: real HTTP on a free local port, a real database, a manual clock. No reconciler
// runs: a test sees the effects of a request alone, and moves instances itself.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { NO_FLEET_PEERS } from '../../../src/appliance/fleet/peers.ts'
import { present } from '../../../src/base/assert.ts'
import { Fault } from '../../../src/base/fault.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { AnonymousLogLimit } from '../../../src/http/anonymous-log-limit.ts'
import { createRequestRate } from '../../../src/http/rate.ts'
import { Attestations } from '../../../src/instances/attestation.ts'
import { createAuthenticate, mintKey } from '../../../src/instances/http/auth.ts'
import { openapiDocument } from '../../../src/instances/http/openapi.ts'
import { INSTANCE_ROUTES } from '../../../src/instances/http/routes.ts'
import { createHttp, type HttpDeps, type HttpFetch } from '../../../src/instances/http/server.ts'
import { createInstancesService, type InstancesDeps } from '../../../src/instances/service.ts'
import { type DirectoryStore, openStore, type Store } from '../../../src/store/db.ts'
import { findInstance } from '../../../src/store/directory/instance.query.ts'
import type { Instance } from '../../../src/store/directory/instance.table.ts'
import { insertKey } from '../../../src/store/directory/key.query.ts'
import type { KeyScope } from '../../../src/store/directory/key.table.ts'
import { findOrganization, insertOrganization } from '../../../src/store/directory/organization.query.ts'
import type { VmEngine } from '../../../src/vm/engine.ts'
import type { HostTrust } from '../../../src/vm/evidence/launch-policy.plan.ts'
import { createManualClock, type ManualClock } from '../clock.ts'
import { createClockGuard } from '../clock-guard.ts'
import { noSnapshots, type SnapshotParts } from './no-snapshots.ts'

export const publicKey =
  'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsJzTQ0tPK4Tw9J6f8W6S1QhIYzG1mJtN5gRt0cMZrE ops@example.org'
export const limits = { bytesMax: 65_536, timeoutMs: 15_000, depthMax: 16 } as const
export const settings: InstancesDeps['settings'] = {
  domain: 'agents.example',
  inferenceModels: ['tiny', 'large'],
  instancesPerOrganizationMax: 200,
  instanceMemoryMib: 2048,
  buildMemoryMib: 4096,
  createsPerDayMax: 100_000,
  recordsPerOrganizationMax: 100_000,
  retentionDays: 30,
  subscriptionCostUsd: '99',
  instanceHoursIncluded: 750,
  overagePerHourUsd: '0.125',
}

export type Appliance = {
  readonly clock: ManualClock
  /** With the handles of the directory, which is all of the store that service A's requests touch. */
  readonly store: Store & DirectoryStore
  readonly http: HttpFetch
  readonly port: number
  /** Requests that wait for their response now. */
  readonly pendingRequests: () => number
  /** Everything logged so far, one JSON object a line. */
  readonly logged: string[]
  /** Prometheus text on requests without a key. */
  readonly metrics: () => string
  /** The first line that fits, now or later. */
  readonly lineLogged: (fits: (line: string) => boolean) => Promise<string>
  /** Calls of the callbacks, in order: `created NAME`, `deleted NAME`. */
  readonly calls: string[]
  readonly keys: { readonly acme: string; readonly acmeRead: string; readonly globex: string; readonly initech: string }
  readonly send: (method: string, path: string, options?: SendOptions) => Promise<Answer>
  /** Creates an instance for acme and returns its record in the store. */
  readonly create: (key?: string) => Promise<Instance>
  readonly instance: (name: string, slug?: string) => Instance
  /** Resolves once a request waits for bytes of its body. */
  readonly bodyAwaited: () => Promise<void>
  /** Writes bytes and reads until the other side closes, or until `until` says that it has seen enough. */
  readonly raw: (parts: readonly Part[], until: (received: string) => boolean) => Promise<string>
  /** Ends the service and starts another one on the same database. */
  readonly restart: (changes?: Changes) => Promise<Appliance>
  readonly [Symbol.asyncDispose]: () => Promise<void>
}

/** Bytes to write, or something to wait for before the next ones. */
export type Part = string | Uint8Array | (() => Promise<void>)

export type SendOptions = {
  readonly key?: string | null
  readonly headers?: Record<string, string>
  readonly body?: unknown
  /** In place of `body`: sent as it is. */
  readonly bytes?: Uint8Array | string | ReadableStream
}

export type Answer = {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly json: Record<string, unknown>
  readonly data: Record<string, unknown>
  readonly error: Record<string, unknown>
}

export type Changes = Partial<
  Pick<
    InstancesDeps,
    'settings' | 'random' | 'takeVm' | 'onCreated' | 'onDeleted' | 'platform' | 'inferenceCostMicroUsd'
  >
> &
  Partial<Pick<HttpDeps, 'routes' | 'others' | 'published'>> & {
    readonly directory?: string
    readonly requestsPerMinute?: number
    readonly attestationsPerMinute?: number
    /** Default: no VM takes a snapshot. */
    readonly snapshots?: (parts: SnapshotParts) => HttpDeps['snapshots']
    readonly engine?: Pick<VmEngine, 'evidence' | 'handReceipt'>
    readonly trust?: () => Promise<HostTrust>
    readonly clock?: ManualClock
    readonly keys?: Appliance['keys']
  }

const nobodyAttests = {
  evidence: () => Promise.reject(new Fault('channel.closed', 'there are no VMs here')),
  handReceipt: async () => {},
}

export async function startAppliance(changes: Changes = {}): Promise<Appliance> {
  const directory = changes.directory ?? mkdtempSync(join(tmpdir(), 'strongroom-test-'))
  const clock = changes.clock ?? createManualClock()
  const guard = createClockGuard(clock)
  const rooms = openStore(join(directory, 'strongroom.db'), { clock })
  const store = { ...rooms, ...rooms.directory }
  const logged: string[] = []
  const calls: string[] = []
  const watchers: ((line: string) => void)[] = []
  const sink = (line: string) => {
    logged.push(line)
    for (const watch of watchers) watch(line)
  }
  const log = createLogger({ level: 'debug', sink, nowMs: clock.nowMs })
  const keys = changes.keys ?? {
    acme: addKey(store, clock, 'acme', 'write'),
    acmeRead: addKey(store, clock, 'acme', 'read'),
    globex: addKey(store, clock, 'globex', 'write'),
    initech: addKey(store, clock, 'initech', 'write'),
  }
  const service = createInstancesService({
    directory: store.directory,
    platform: changes.platform ?? 'tcg',
    clock,
    admitNew: () => {},
    isClockTrusted: () => guard.mayDelete(),
    random: changes.random ?? systemRandom,
    log,
    settings: changes.settings ?? settings,
    takeVm: changes.takeVm ?? (() => ({ vmId: newUuid(), start: 'cold' })),
    onCreated: changes.onCreated ?? (instance => calls.push(`created ${instance.name}`)),
    onDeleted: changes.onDeleted ?? (instance => calls.push(`deleted ${instance.name}`)),
    inferenceCostMicroUsd: changes.inferenceCostMicroUsd ?? (() => 0n),
  })
  const attestationRate = createRequestRate({
    clock,
    requestsPerMinute: changes.attestationsPerMinute ?? 1_000_000,
    what: 'fresh attestations',
  })
  const attestations = new Attestations({
    directory: store,
    hostId: store.hostId,
    engine: changes.engine ?? nobodyAttests,
    trust: changes.trust ?? (() => Promise.reject(new Error('nobody is attested here'))),
    admit: keyPrefix => attestationRate.take(keyPrefix),
    clock,
    log,
  })
  const strangers = new AnonymousLogLimit({ clock, log })
  const http = createHttp({
    log,
    clock,
    random: systemRandom,
    admitChange: () => {},
    strangers,
    limits,
    rate: createRequestRate({ clock, requestsPerMinute: changes.requestsPerMinute ?? 1_000_000 }),
    directory: store,
    peers: NO_FLEET_PEERS,
    authenticate: createAuthenticate({ directory: store, clock, log }),
    service,
    attestations,
    snapshots: (changes.snapshots ?? noSnapshots)({ directory: store, hostId: store.hostId, clock }),
    routes: changes.routes ?? INSTANCE_ROUTES,
    others: changes.others ?? [],
    openapi: openapiDocument(),
    published: changes.published ?? (() => '{}'),
  })
  const listener = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    development: false,
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    fetch: (request, server) => http(request, { address: () => server.requestIP(request)?.address ?? '' }),
  })
  const port = present(listener.port, 'a TCP listener has a port')
  const stop = async () => {
    // Tests leave connections open on purpose; there is nothing to wait for.
    strangers[Symbol.dispose]()
    await listener.stop(true)
    store.close()
  }
  const send = (method: string, path: string, options: SendOptions = {}) =>
    sendTo(`http://127.0.0.1:${port}${path}`, method, { key: keys.acme, ...options })
  const instance = (name: string, slug = 'acme') => {
    const organization = findOrganization(store.db, slug)
    const found = organization && findInstance(store.db, { organizationId: organization.id, name })
    if (!found) throw new Error(`no instance ${name} of ${slug}`)
    return found
  }
  return {
    clock,
    store,
    http,
    port,
    pendingRequests: () => listener.pendingRequests,
    logged,
    metrics: () => strangers.render(),
    lineLogged: fits =>
      new Promise(resolve => {
        watchers.push(line => fits(line) && resolve(line))
        for (const line of logged) if (fits(line)) resolve(line)
      }),
    calls,
    keys,
    send,
    instance,
    // The access log's minute sleeps besides.
    bodyAwaited: () => clock.sleepers(2),
    create: async (key = keys.acme) => {
      const answer = await send('POST', '/v1/instances', { key, body: { public_key: publicKey } })
      if (answer.status !== 202) throw new Error(answer.text)
      return instance(String(answer.data.name), key === keys.globex ? 'globex' : 'acme')
    },
    raw: (parts, until) => rawExchange(port, parts, until),
    restart: async further => {
      await stop()
      return startAppliance({ ...changes, ...further, directory, clock, keys })
    },
    [Symbol.asyncDispose]: async () => {
      await stop()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

/** A new key for an organization that is made where it is missing. */
export function addKey(store: DirectoryStore, clock: ManualClock, slug: string, scope: KeyScope): string {
  insertOrganization(store.db, { id: newUuid(), slug, nowMs: clock.nowMs() })
  const organization = findOrganization(store.db, slug)
  if (organization === null) throw new Error(`no organization ${slug}`)
  const minted = mintKey(systemRandom)
  const { prefix, secretSha256 } = minted
  insertKey(store.db, { prefix, organizationId: organization.id, secretSha256, scope, nowMs: clock.nowMs() })
  return minted.key
}

export function prefixOf(key: string): string {
  return key.split('_')[1] ?? ''
}

async function sendTo(url: string, method: string, options: SendOptions): Promise<Answer> {
  const body = options.bytes ?? (options.body === undefined ? undefined : JSON.stringify(options.body))
  const response = await fetch(url, {
    method,
    headers: {
      ...(options.key === null ? {} : { Authorization: `Bearer ${options.key}` }),
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...options.headers,
    },
    ...(body === undefined ? {} : { body }),
  })
  const text = await response.text()
  const json = text === '' ? {} : JSON.parse(text)
  return { status: response.status, headers: response.headers, text, json, data: json.data, error: json.error }
}

async function rawExchange(
  port: number,
  parts: readonly Part[],
  until: (received: string) => boolean,
): Promise<string> {
  let received = ''
  const enough = Promise.withResolvers<void>()
  const socket = await Bun.connect({
    hostname: '127.0.0.1',
    port,
    socket: {
      data: (_, bytes) => {
        received += bytes.toString('latin1')
        if (until(received)) enough.resolve()
      },
      close: () => enough.resolve(),
      error: () => enough.resolve(),
    },
  })
  for (const part of parts) {
    if (typeof part === 'function') await part()
    else socket.write(part)
  }
  await enough.promise
  socket.end()
  return received
}
