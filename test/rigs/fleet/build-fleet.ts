// Hosts of a fleet with service C alone, in one process: real PostgreSQL, a database and build VMs that play scripts
// for each, plain HTTP in the place of the channel between hosts. Effects: files of a temporary directory, ports,
// connections.

import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  type Answer,
  type BuildsChanges,
  certainClock,
  parseEvents,
  randomNonce,
  type SeenEvent,
  type SendOptions,
  sendTo,
  source,
  startBuildDaemon,
} from '../../../scripts/rigs/build/builds-service.ts'
import { type FakeBuildEngine, fakeBuildEngine } from '../../../scripts/rigs/build/engine.ts'
import { impatientLimits } from '../../../scripts/rigs/fleet/fleet-host.ts'
import { admitHost, asOwner, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { report } from '../../../scripts/rigs/postgres/hosts.ts'
import { type DatabaseProxy, startProxy } from '../../../scripts/rigs/postgres/proxy.ts'
import type { PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { present } from '../../../src/base/assert.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { Builds } from '../../../src/builds/builds.ts'
import type { BuildPeers } from '../../../src/builds/fleet.ts'
import { parseDatabaseUrl } from '../../../src/config/fleet/database-url.ts'
import { parsePrincipal, principalText } from '../../../src/contract/http/forwarded-principal.ts'
import { type FleetDirectory, openFleetDirectory } from '../../../src/fleet/directory/directory.ts'
import { fleetIdOf } from '../../../src/fleet/directory/feed.ts'
import type { PostgresLimits } from '../../../src/fleet/driver.ts'
import { failAllOf } from '../../../src/fleet/hosts/give-up.ts'
import { Lease } from '../../../src/fleet/hosts/lease.ts'
import { listenForChanges } from '../../../src/fleet/listener.ts'
import { requestHeaders } from '../../../src/fleet/peers/forwarded.ts'
import { openPeerKey } from '../../../src/fleet/peers/peer-key.ts'
import { publishPeer } from '../../../src/fleet/peers/peers.query.ts'
import { openPostgres, type Postgres } from '../../../src/fleet/postgres.ts'
import { UnavailableFault } from '../../../src/http/limited.ts'
import { mintKey } from '../../../src/instances/http/auth.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { buildById } from '../../../src/store/directory/build.query.ts'
import type { Build } from '../../../src/store/directory/build.table.ts'
import { insertKey } from '../../../src/store/directory/key.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'

export type BuildHost = {
  readonly name: string
  readonly hostId: string
  readonly world: FakeBuildEngine
  readonly store: Store
  readonly builds: Builds
  readonly fleet: FleetDirectory
  readonly postgres: Postgres
  readonly logged: string[]
  readonly directory: string
  readonly send: (method: string, path: string, options?: SendOptions) => Promise<Answer>
  /** The response itself. */
  readonly open: (path: string, init?: RequestInit) => Promise<Response>
  readonly submit: (body?: object, path?: string) => Promise<string>
  readonly events: (id: string, query?: string) => Promise<SeenEvent[]>
  readonly build: (id: string) => Build
  /** Null if there is none. */
  readonly look: (id: string) => Build | null
  readonly ended: (id: string) => Promise<Build>
  /** Until the directory has all that this host says. A host that is killed before that says it once it is back. */
  readonly reported: () => Promise<void>
  /** As kill -9. */
  readonly kill: () => Promise<void>
}

export type BuildFleetRig = AsyncDisposable & {
  /** Starts a host, also one that was killed. */
  readonly host: (name: string, changes?: HostChanges) => Promise<BuildHost>
  readonly hosts: () => readonly BuildHost[]
  readonly cut: () => void
  readonly restore: () => void
  /** Whether hosts reach one another. */
  readonly cutPeers: (isCut: boolean) => void
  /** Statements of the role that owns the directory. */
  readonly asOwner: <T>(work: (owner: Postgres) => Promise<T>) => Promise<T>
  readonly sql: (text: string) => Promise<string>
  readonly keys: { readonly acme: string; readonly globex: string }
}

export type HostChanges = BuildsChanges & {
  readonly lostAfterMs?: number
  /** It has no address for other hosts. */
  readonly answersNone?: boolean
  /** Newest schema of the directory that its lease names. */
  readonly schema?: number
}

const fromField = 'x-test-host'
const principalField = 'x-test-principal'

type Alive = { readonly hostId: string; readonly peerUrl: string }
type HostState = { readonly world: FakeBuildEngine; readonly logged: string[]; changes: HostChanges }

/** Where nothing waits for an outage to end: a machine that holds a statement or this process up fails no test. */
const patientLimits = { connectMs: 30_000, statementMs: 30_000, lockMs: 30_000, transactionMs: 60_000 }

/** `isCut`: the test takes the database away, and does not wait for it as long as hosts do. */
export async function openBuildFleet(server: PostgresServer, { isCut = false } = {}): Promise<BuildFleetRig> {
  const root = mkdtempSync(join(tmpdir(), 'srt-builds-'))
  const database = await newFleet(server)
  const proxy = await startProxy(server.port)
  const alive = new Map<string, Alive>()
  const hosts = new Map<string, BuildHost>()
  const kept = new Map<string, HostState>()
  const way = { isCut: false }
  let keys: BuildFleetRig['keys'] | null = null
  const start = async (name: string, changes?: HostChanges): Promise<BuildHost> => {
    const directory = join(root, name)
    mkdirSync(directory, { recursive: true })
    const place = kept.get(name) ?? { world: fakeBuildEngine(directory), logged: [], changes: {} }
    place.changes = { ...place.changes, ...changes }
    kept.set(name, place)
    const host = await startHost({
      ...{ name, directory, alive, place, way, limits: isCut ? impatientLimits : patientLimits },
      database: database.replace(`:${server.port}/`, `:${proxy.port}/`),
      key: () => present(keys, 'the first host makes the keys').acme,
    })
    hosts.set(name, host)
    keys ??= { acme: await newKey(host.store, 'acme'), globex: await newKey(host.store, 'globex') }
    return host
  }
  return {
    host: start,
    hosts: () => [...hosts.values()],
    cut: () => proxy.set('hole'),
    restore: () => proxy.set('open'),
    cutPeers: isCut => {
      way.isCut = isCut
    },
    asOwner: work => asOwner(database, work),
    sql: async text => (await server.run(text, new URL(database).pathname.slice(1))).trim(),
    get keys() {
      return present(keys, 'there is a host')
    },
    [Symbol.asyncDispose]: () => endAll([...hosts.values()], proxy, root),
  }
}

async function endAll(hosts: readonly BuildHost[], proxy: DatabaseProxy, root: string): Promise<void> {
  proxy.set('open')
  for (const host of hosts) await host.kill()
  await proxy[Symbol.asyncDispose]()
  rmSync(root, { recursive: true, force: true })
}

type HostDeps = {
  readonly name: string
  readonly directory: string
  readonly database: string
  readonly limits: Partial<PostgresLimits>
  readonly alive: Map<string, Alive>
  readonly way: { readonly isCut: boolean }
  readonly place: HostState
  readonly key: () => string
}

async function startHost({ name, directory, database, limits, alive, way, place, key }: HostDeps): Promise<BuildHost> {
  const { world, logged, changes } = place
  const alone = openStore(join(directory, 'strongroom.db'))
  const { hostId } = alone
  const parsed = parseDatabaseUrl(await admitHost(database, { id: hostId, name }))
  if (!parsed.ok) throw new Error(parsed.problem)
  const target = { ...parsed.address, caPem: null, applicationName: name }
  const postgres = await openPostgres({ target, limits, clock: systemClock, log: silentLogger })
  const { lostAfterMs = 60_000, schema = report.schema } = changes
  const lease = await enter(postgres, { hostId, lostAfterMs, schema })
  let onBuilds: (ids: readonly string[]) => void = () => {}
  const fleet = openFleetDirectory(
    {
      ...{ directory: alone.directory, hostId, postgres, clock: systemClock, log: silentLogger },
      adopt: () => ({ vmId: 'none' }),
      onApplied: ({ builds }) => onBuilds(builds),
    },
    await fleetIdOf(postgres),
  )
  fleet.setMember(true)
  const store: Store = { ...alone, directory: fleet.store }
  const daemon = startBuildDaemon({
    ...{ directory, world, logged, gate: [], store },
    changes: { ...changes, starts: false },
    peers: peersOf({ alive, way, hostId }),
  })
  onBuilds = daemon.builds.changed
  const peerPort = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    development: false,
    idleTimeout: 60,
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    fetch: request => answerPeer(daemon.builds, request),
  })
  const own = await openPeerKey({ stateDir: directory, hostId, nowMs: Date.now(), random: systemRandom })
  await publishPeer(postgres, hostId, {
    address: changes.answersNone === true ? null : `127.0.0.1:${peerPort.port}`,
    certificate: own.certificate,
  })
  alive.set(name, { hostId, peerUrl: `http://127.0.0.1:${peerPort.port}` })
  const stopping = new AbortController()
  const heard = listenForChanges({
    ...{ target, limits, clock: systemClock, log: silentLogger },
    onChange: fleet.wake,
    signal: stopping.signal,
  })
  fleet.start()
  await until('the copy is there', 60_000, () => fleet.waitsFor() === null)
  const renewing = lease.run(stopping.signal)
  if (changes.starts !== false) daemon.builds.start()
  let isKilled = false
  const url = `http://127.0.0.1:${daemon.listener.port}`
  const send: BuildHost['send'] = (method, path, options = {}) => sendTo(url + path, method, { key: key(), ...options })
  const build = (id: string) => present(buildById(store.directory.db, id), `build ${id}`)
  return {
    ...{ name, hostId, world, store, builds: daemon.builds, fleet, postgres, logged, directory, send, build },
    look: id => buildById(store.directory.db, id),
    open: (path, init = {}) =>
      fetch(url + path, { ...init, headers: { authorization: `Bearer ${key()}`, ...init.headers } }),
    submit: async (body = {}, path = '/build') => {
      const whole = { nonce: randomNonce(), source_data: source.toString('base64'), ...body }
      const answer = await send('POST', path, { body: whole })
      if (answer.status !== 200) throw new Error(`${answer.status} ${answer.text}`)
      return String(answer.json.job_id)
    },
    events: async (id, query = '') => parseEvents((await send('GET', `/build/${id}/events${query}`)).text),
    ended: async id => {
      await until(`build ${id} has ended`, 60_000, () => buildById(store.directory.db, id)?.closedAtMs != null)
      return build(id)
    },
    reported: () => until(`${name} has reported`, 60_000, () => fleet.view().unreportedRows === 0),
    kill: async () => {
      if (isKilled) return
      isKilled = true
      alive.delete(name)
      stopping.abort()
      await peerPort.stop(true)
      const stopped = fleet.stop()
      await daemon.kill()
      await Promise.all([stopped, heard, renewing])
      await postgres.close()
    },
  }
}

function peersOf({
  alive,
  way,
  hostId,
}: {
  readonly alive: ReadonlyMap<string, Alive>
  readonly way: { readonly isCut: boolean }
  readonly hostId: string
}): BuildPeers {
  const call = async (to: string, path: string, init: RequestInit): Promise<Response> => {
    const found = [...alive.values()].find(host => host.hostId === to)
    try {
      if (found === undefined || way.isCut) throw new Error('it is not there')
      const headers = new Headers(init.headers)
      headers.set(fromField, hostId)
      return await fetch(found.peerUrl + path, { ...init, headers, decompress: false, keepalive: false })
    } catch (cause) {
      throw new UnavailableFault('Another host does not answer.', 2_000, { code: 'fleet.unavailable', cause })
    }
  }
  return {
    others: () => (way.isCut ? [] : [...alive.values()].map(host => host.hostId).filter(id => id !== hostId)),
    forward: (to, request, { principal }) => {
      const { pathname, search } = new URL(request.url)
      const { method, body, signal } = request
      const headers = requestHeaders(request.headers)
      headers.set(principalField, principalText(principal))
      return call(to, pathname + search, { method, headers, signal, ...(body === null ? {} : { body }) })
    },
    ask: (to, path, signal) => call(to, path, { signal, headers: { 'x-test-own': '1' } }),
  }
}

function answerPeer(builds: Builds, request: Request): Promise<Response> {
  const from = request.headers.get(fromField) ?? ''
  if (request.headers.has('x-test-own')) return builds.answerHost(request, from)
  const principal = parsePrincipal(request.headers.get(principalField) ?? '') ?? null
  return builds.fetch(request, { address: () => '127.0.0.1', mayPause: () => {}, principal, isForwarded: true })
}

async function enter(
  postgres: Postgres,
  host: { readonly hostId: string; readonly lostAfterMs: number; readonly schema: number },
): Promise<Lease> {
  const { hostId, lostAfterMs, schema } = host
  const lease = new Lease({
    ...{ postgres, hostId, platform: 'tcg', lostAfterMs, clock: systemClock, log: silentLogger },
    renewEveryMs: 300,
    report: () => ({ places: 0, report: { ...report, schema } }),
    giveUp: failAllOf,
    onEvent: () => {},
  })
  await lease.renew()
  return lease
}

async function newKey({ directory }: Store, slug: string): Promise<string> {
  const { key, prefix, secretSha256 } = mintKey(systemRandom)
  const nowMs = certainClock.nowMs()
  await directory.change(tx => {
    insertOrganization(tx, { id: `org-${slug}`, slug, nowMs })
    insertKey(tx, { prefix, organizationId: `org-${slug}`, secretSha256, scope: 'write', nowMs })
  })
  return key
}

export function eventFile(host: BuildHost, id: string): string {
  return readFileSync(join(host.directory, 'builds', id, 'events.jsonl'), 'utf8')
}
