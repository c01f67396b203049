// Service C as its clients meet it: real HTTP on a free local port, a real database and directory, VMs that play
// scripts.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { present } from '../../../src/base/assert.ts'
import type { Clock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { type Builds, type BuildsDeps, createBuilds } from '../../../src/builds/builds.ts'
import type { BuildProof } from '../../../src/builds/evidence.verify.ts'
import type { FetchGate } from '../../../src/builds/fetch/proxy.ts'
import type { BuildPeers } from '../../../src/builds/fleet.ts'
import type { BuildsSettings } from '../../../src/builds/types.ts'
import { createRequestRate } from '../../../src/http/rate.ts'
import { createAuthenticate } from '../../../src/instances/http/auth.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { buildById } from '../../../src/store/directory/build.query.ts'
import type { Build } from '../../../src/store/directory/build.table.ts'
import type { Admission } from '../../../src/vm/admission.plan.ts'
import { runningClock } from '../clock.ts'
import { createClockGuard } from '../clock-guard.ts'
import { simulatedTrust } from '../guest/attested-guest.ts'
import { addKey } from '../instances/instances-service.ts'
import { simulatedAsOf } from '../launch/simulated-platform.ts'
import { until } from '../until.ts'
import { exchangeBytes, type FakeBuildEngine, fakeBuildEngine } from './engine.ts'

export const buildLimits = {
  sourceBytes: 1_048_576,
  sourceEntries: 1000,
  fetchSeconds: 60,
  fetchBytes: 1_048_576,
  buildSeconds: 60,
  memoryBytes: 1_073_741_824,
  pids: 100,
  diskBytes: 1_073_741_824,
  logBytes: 1_048_576,
  artifactBytes: 1_048_576,
  artifactCount: 10,
}

export const buildsSettings: BuildsSettings = {
  concurrentMax: 4,
  queueMax: 8,
  perOrganizationMax: 100,
  perDayMax: 1000,
  uploadsMax: 8,
  reservedMs: 60_000,
  instanceMemoryMib: 2048,
  buildMemoryMib: 4096,
  retentionMs: 86_400_000,
  resultBytesMax: 64 * 1_048_576,
  exchangeBytes,
  eventBytesMax: 1_048_576,
  fetchHosts: ['git.example'],
  rustMirror: null,
  fetch: null,
  limits: buildLimits,
  builderId: 'https://builds.example',
}

/** Runs on real time, from a moment at which the simulated certificates are valid. */
export const certainClock: Clock = {
  ...runningClock,
  nowMs: () => Math.round(simulatedAsOf.getTime() + performance.now()),
}

export type BuildsChanges = {
  readonly settings?: Partial<BuildsSettings>
  readonly open?: boolean
  readonly warm?: number
  readonly room?: () => Admission
  readonly body?: { readonly sourceBytesMax?: number; readonly timeoutMs?: number; readonly slowMs?: number }
  readonly requestsPerMinute?: number
  readonly clock?: Clock
  readonly imageDirectory?: string
  readonly others?: BuildsDeps['others']
  readonly beforeResult?: (proof: BuildProof) => void
  /** Whether builds are carried out; else they stay where their requests have put them. */
  readonly starts?: boolean
  readonly bringMs?: number
}

export type Answer = {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly json: Readonly<Record<string, unknown>>
}

export type BuildsRig = AsyncDisposable & {
  readonly directory: string
  readonly world: FakeBuildEngine
  readonly store: () => Store
  readonly builds: () => Builds
  readonly url: () => string
  readonly keys: { readonly acme: string; readonly acmeRead: string; readonly globex: string }
  /** Calls of the fetch gate, in order. */
  readonly gate: string[]
  readonly logged: string[]
  readonly send: (method: string, path: string, options?: SendOptions) => Promise<Answer>
  /** Submits a small archive and returns the job's id. */
  readonly submit: (body?: object, path?: string) => Promise<string>
  readonly build: (id: string) => Build
  /** Waits until the build has ended and nothing is left to do for it. */
  readonly ended: (id: string) => Promise<Build>
  /** The whole of its events. */
  readonly events: (id: string, query?: string) => Promise<SeenEvent[]>
  /** As kill -9: nothing that the old daemon does from now on has an effect. Then another one on the same directory. */
  readonly restart: (changes?: BuildsChanges) => Promise<void>
}

export type SendOptions = {
  readonly key?: string | null
  readonly body?: unknown
  readonly bytes?: Uint8Array | string | ReadableStream
  readonly headers?: Record<string, string>
}

export type SeenEvent = {
  readonly id: number
  readonly event: string
  readonly data: Readonly<Record<string, unknown>>
}

export const source = Buffer.from('an archive')

export function randomNonce(): string {
  return Buffer.from(systemRandom(16)).toString('hex')
}

export async function startBuilds(first: BuildsChanges = {}): Promise<BuildsRig> {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-builds-'))
  const world = fakeBuildEngine(directory)
  const logged: string[] = []
  const gate: string[] = []
  let changes = first
  let daemon = startDaemon({ directory, world, logged, gate, changes })
  const clock = { nowMs: certainClock.nowMs } as never
  const keys = {
    acme: addKey(daemon.store.directory, clock, 'acme', 'write'),
    acmeRead: addKey(daemon.store.directory, clock, 'acme', 'read'),
    globex: addKey(daemon.store.directory, clock, 'globex', 'write'),
  }
  const url = () => `http://127.0.0.1:${daemon.listener.port}`
  const send = (method: string, path: string, options: SendOptions = {}) =>
    sendTo(`${url()}${path}`, method, { key: keys.acme, ...options })
  const build = (id: string) => present(buildById(daemon.store.directory.db, id), `build ${id}`)
  return {
    directory,
    world,
    logged,
    gate,
    keys,
    url,
    send,
    build,
    store: () => daemon.store,
    builds: () => daemon.builds,
    submit: async (body = {}, path = '/build') => {
      const whole = { nonce: randomNonce(), source_data: source.toString('base64'), ...body }
      const answer = await send('POST', path, { body: whole })
      if (answer.status !== 200) throw new Error(answer.text)
      return String(answer.json.job_id)
    },
    ended: async id => {
      await until(`build ${id} has ended`, 60_000, () => build(id).closedAtMs !== null)
      return build(id)
    },
    events: async (id, query = '') => parseEvents((await send('GET', `/build/${id}/events${query}`)).text),
    restart: async further => {
      changes = { ...changes, ...further }
      await daemon.kill()
      daemon = startDaemon({ directory, world, logged, gate, changes })
    },
    [Symbol.asyncDispose]: async () => {
      await daemon.kill()
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

export type DaemonParts = {
  readonly directory: string
  readonly world: FakeBuildEngine
  readonly logged: string[]
  readonly gate: string[]
  readonly changes: BuildsChanges
}

const away = () => Promise.reject(new Error('there are no other hosts'))
const noPeers: BuildPeers = { others: () => [], forward: away, ask: away }

function startDaemon(parts: DaemonParts) {
  return startBuildDaemon({ ...parts, store: openStore(join(parts.directory, 'strongroom.db')), peers: noPeers })
}

/** One daemon with service C alone, on records of its own or on a fleet's. */
export function startBuildDaemon({
  directory,
  world,
  logged,
  gate,
  changes,
  store,
  peers,
}: DaemonParts & { readonly store: Store; readonly peers: BuildPeers }) {
  const clock = changes.clock ?? certainClock
  const log = createLogger({ level: 'debug', sink: text => logged.push(text), nowMs: clock.nowMs })
  const settings = { ...buildsSettings, ...changes.settings }
  const { engine, kill } = world.connect()
  const watched: FetchGate = {
    open: ({ buildId, address }) => void gate.push(`open ${buildId} ${address}`),
    close: buildId => void gate.push(`close ${buildId}`),
  }
  const authenticate = createAuthenticate({ directory: store.directory, clock, log })
  const rate = createRequestRate({ clock, requestsPerMinute: changes.requestsPerMinute ?? 1_000_000 })
  const limits = {
    sourceBytesMax: 1_048_576,
    documentBytesMax: 65_536,
    timeoutMs: 60_000,
    slowMs: 60_000,
    depthMax: 16,
    ...changes.body,
  }
  const builds = createBuilds({
    directory: join(directory, 'builds'),
    store,
    peers,
    fetchTimeoutMs: changes.bringMs,
    engine,
    clock,
    guard: createClockGuard(clock),
    random: systemRandom,
    log,
    settings,
    admitNew: () => {},
    gate: watched,
    trust: simulatedTrust,
    beforeResult: changes.beforeResult ?? (() => {}),
    others: changes.others ?? [],
    ownUrl: 'https://builds.example',
    imageDirectory: changes.imageDirectory ?? join(directory, 'no-image'),
    imageSummaries: () => [],
    vm: {
      spec: { image: 'builder', vcpus: 1, memoryMib: 1024 },
      shape: 'a shape',
      warm: changes.warm ?? 0,
      imageDigest: () => 'aa'.repeat(32),
      room: changes.room ?? (() => ({ kind: 'admit' })),
    },
    http: {
      caller: (headers, need, passed) => {
        const isNobody = passed === undefined ? headers.get('authorization') === null : passed === null
        if (changes.open === true && isNobody) return { organizationId: null, slug: null, keyPrefix: null }
        const { organization, keyPrefix } = authenticate(headers, need, passed)
        return { organizationId: organization.id, slug: organization.slug, keyPrefix }
      },
      count: ({ keyPrefix }) => rate.take(keyPrefix ?? ''),
      admitPublic: () => {},
      admitChange: () => {},
      strangers: { level: level => level },
      baseUrl: '',
      limits,
      openapi: '{}',
    },
  })
  const listener = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    development: false,
    idleTimeout: 30,
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    fetch: (request, server) =>
      builds.fetch(request, {
        address: () => server.requestIP(request)?.address ?? '',
        mayPause: () => server.timeout(request, 255),
      }),
  })
  if (changes.starts !== false) builds.start()
  return {
    store,
    builds,
    listener,
    kill: async () => {
      kill()
      await listener.stop(true)
      // A worker in the middle of a call never comes back, as after kill -9; the others stop at their next turn.
      void builds.stop().catch(() => {})
      await Bun.sleep(0)
      store.close()
    },
  }
}

export async function sendTo(url: string, method: string, options: SendOptions): Promise<Answer> {
  const { key = null, body, bytes, headers = {} } = options
  const response = await fetch(url, {
    method,
    headers: {
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(bytes !== undefined ? { body: bytes as string } : body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  let json: Answer['json'] = {}
  try {
    json = JSON.parse(text)
  } catch {
    // No JSON.
  }
  return { status: response.status, headers: response.headers, text, json }
}

export function parseEvents(text: string): SeenEvent[] {
  return text
    .split('\n\n')
    .filter(block => block.includes('data: '))
    .map(block => {
      const field = (name: string) =>
        block
          .split('\n')
          .find(text => text.startsWith(`${name}: `))
          ?.slice(name.length + 2) ?? ''
      return { id: Number(field('id')), event: field('event'), data: JSON.parse(field('data')) }
    })
}

/** `type` and `msg` of each, for comparing. */
export function saidBy(events: readonly SeenEvent[]): string[] {
  return events.map(({ event, data }) => `${event}: ${data.msg ?? JSON.stringify(data.result ?? data.position)}`)
}
