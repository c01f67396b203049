// Hosts of one fleet in one process, asked over HTTP as clients do. Effects: a database, files of a temporary
// directory, ports.

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type FleetHost, startFleetHost } from '../../../scripts/rigs/fleet/fleet-host.ts'
import { type settings as defaultSettings, publicKey } from '../../../scripts/rigs/instances/instances-service.ts'
import { admitHost, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { type DatabaseProxy, startProxy } from '../../../scripts/rigs/postgres/proxy.ts'
import type { PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { mintKey } from '../../../src/instances/http/auth.ts'
import { type RemovedCounts, removeExpired } from '../../../src/instances/retention.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertKey, revokeKey } from '../../../src/store/directory/key.query.ts'
import {
  findOrganization,
  insertOrganization,
  setOrganizationStatus,
} from '../../../src/store/directory/organization.query.ts'

export type InstanceView = {
  readonly name: string
  readonly hostname: string
  readonly status: string
  readonly ready_at: string | null
  readonly created_at: string
  readonly failure_code: string | null
  readonly terminated_reason: string | null
}

export type Answer = {
  readonly status: number
  readonly body: {
    readonly data: InstanceView & { readonly instances: readonly InstanceView[] }
    readonly error: { readonly code: string; readonly message: string }
  }
  readonly retryAfter: string | null
}

type Sent = { readonly key?: string; readonly idempotencyKey?: string; readonly publicKey?: string }

export type Host = {
  readonly send: (method: string, path: string, sent?: Sent) => Promise<Answer>
  readonly create: (sent?: Sent) => Promise<Answer>
  /** Creates an instance, which must be accepted. */
  readonly created: () => Promise<InstanceView>
  readonly shown: (name: string) => Promise<InstanceView>
  readonly listed: () => Promise<readonly InstanceView[]>
  /** An organization that is made where it is missing gets another key. */
  readonly newKey: (slug: string) => Promise<string>
  readonly revoke: (key: string) => Promise<void>
  readonly suspend: (slug: string) => Promise<void>
  readonly vms: () => string[]
  readonly addressOf: (hostname: string) => string | null
  /** As if so many days had gone by. */
  readonly removeExpired: (days: number) => Promise<RemovedCounts>
  readonly stop: () => Promise<void>
  readonly inside: FleetHost
}

type HostOptions = {
  readonly places?: number
  readonly bootMs?: number
  readonly mayBoot?: Promise<unknown>
  readonly isBroken?: boolean
  readonly isAttested?: boolean
  readonly attestationsPerMinute?: number
  readonly lostAfterMs?: number
  /** Reaches the database also while the way of the others is cut. */
  readonly isDirect?: boolean
  readonly log?: (line: string) => void
  readonly isJoined?: boolean
  readonly sumsEveryMs?: number
  readonly checkEveryMs?: number
  readonly wrongMs?: () => number
  /** Default: where no way is cut. */
  readonly isUnhurried?: boolean
}

export type Fleet = {
  readonly otherPublicKey: string
  /** Starts a host, also one that was stopped. The first makes the organization that all requests are for. */
  readonly host: (name: string, options?: HostOptions) => Promise<Host>
  /** The first two. */
  readonly both: () => readonly [Host, Host]
  readonly pairs: () => readonly (readonly [by: Host, other: Host])[]
  readonly vms: () => string[]
  /** As `strongroom fleet join` on a host that never started. */
  readonly joins: (name: string) => Promise<void>
  /** The database answers nobody; its connections stay open. */
  readonly cut: () => void
  readonly restore: () => void
  readonly sql: (text: string) => Promise<string>
}

type FleetOptions = { readonly settings?: Partial<typeof defaultSettings>; readonly isCut?: boolean }

/** In the place of an instance that a host does not show. */
const nothing: InstanceView = {
  ...{ name: '', hostname: '', status: '', created_at: '' },
  ...{ ready_at: null, failure_code: null, terminated_reason: null },
}

const dayMs = 24 * 60 * 60 * 1000

export async function openFleet(server: PostgresServer, options: FleetOptions = {}): Promise<Fleet & AsyncDisposable> {
  const undo = new AsyncDisposableStack()
  const root = mkdtempSync(join(tmpdir(), 'srt-fleet-'))
  undo.defer(() => rmSync(root, { recursive: true, force: true }))
  const database = await newFleet(server)
  const of = new URL(database).pathname.slice(1)
  const proxy = options.isCut === true ? undo.use(await startProxy(server.port)) : null
  const throughProxy = proxy === null ? database : database.replace(`:${server.port}/`, `:${proxy.port}/`)
  const hosts = new Map<string, Host>()
  let ownKey = ''
  const directoryOf = (name: string) => {
    const directory = join(root, name)
    mkdirSync(directory, { recursive: true })
    return directory
  }
  const start = async (name: string, { isDirect = false, ...more }: HostOptions = {}): Promise<Host> => {
    const directory = directoryOf(name)
    const inside = undo.use(
      await startFleetHost({
        isUnhurried: isDirect || proxy === null,
        ...more,
        directory,
        database: isDirect ? database : throughProxy,
        name,
        ...(options.settings === undefined ? {} : { settings: options.settings }),
      }),
    )
    const host = clientOf(
      inside,
      () => ownKey,
      days => server.run(laterBy(days), of),
    )
    if (ownKey === '') ownKey = await host.newKey('acme')
    hosts.set(name, host)
    return host
  }
  const both = (): readonly [Host, Host] => {
    const [first, second] = [...hosts.values()]
    if (first === undefined || second === undefined) throw new Error('there are no two hosts')
    return [first, second]
  }
  return {
    otherPublicKey: publicKey.replace('ops@', 'dev@'),
    host: start,
    both,
    pairs: () => {
      const [first, second] = both()
      return [
        [first, second],
        [second, first],
      ]
    },
    vms: () => [...hosts.values()].flatMap(host => host.vms()),
    joins: async name => {
      const store = openStore(join(directoryOf(name), 'strongroom.db'))
      const { hostId } = store
      store.close()
      await admitHost(database, { id: hostId, name })
    },
    cut: () => present(proxy).set('hole'),
    restore: () => present(proxy).set('open'),
    sql: async text => (await server.run(text, of)).trim(),
    [Symbol.asyncDispose]: () => {
      proxy?.set('open')
      return undo.disposeAsync()
    },
  }
}

function present(proxy: DatabaseProxy | null): DatabaseProxy {
  if (proxy === null) throw new Error('this fleet is opened without `isCut`')
  return proxy
}

/** The database's clock as the guards of retention read it. */
function laterBy(days: number): string {
  return `CREATE OR REPLACE FUNCTION strongroom.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + ${days * dayMs} $$`
}

function clientOf(inside: FleetHost, ownKey: () => string, passDays: (days: number) => Promise<unknown>): Host {
  const { directory } = inside.store
  const nowMs = () => systemClock.nowMs()
  const host: Host = {
    inside,
    send: async (method, path, { key = ownKey(), idempotencyKey, publicKey: given = publicKey } = {}) => {
      const isPost = method === 'POST'
      const response = await fetch(inside.url + path, {
        method,
        headers: {
          Authorization: `Bearer ${key}`,
          ...(isPost ? { 'Content-Type': 'application/json' } : {}),
          ...(idempotencyKey === undefined ? {} : { 'Idempotency-Key': idempotencyKey }),
        },
        ...(isPost ? { body: JSON.stringify({ public_key: given }) } : {}),
      })
      const body = (await response.json()) as Answer['body']
      return { status: response.status, body, retryAfter: response.headers.get('retry-after') }
    },
    create: sent => host.send('POST', '/v1/instances', sent),
    created: async () => {
      const { status, body } = await host.create()
      if (status !== 202) throw new Error(`${status}: ${JSON.stringify(body)}`)
      return body.data
    },
    shown: async name => {
      const { status, body } = await host.send('GET', `/v1/instances/${name}`)
      return body.data ?? { ...nothing, status: `${status}: ${body.error.message}` }
    },
    listed: async () => (await host.send('GET', '/v1/instances')).body.data.instances,
    newKey: async slug => {
      const { key, prefix, secretSha256 } = mintKey(systemRandom)
      await directory.change(tx => {
        insertOrganization(tx, { id: newUuid(), slug, nowMs: nowMs() })
        const organization = findOrganization(tx, slug)
        if (organization === null) throw new Error(`no organization ${slug}`)
        insertKey(tx, { prefix, organizationId: organization.id, secretSha256, scope: 'write', nowMs: nowMs() })
      })
      return key
    },
    revoke: async key => {
      await directory.change(tx => revokeKey(tx, { prefix: key.split('_')[1] ?? '', nowMs: nowMs() }))
    },
    suspend: async slug => {
      await directory.change(tx => setOrganizationStatus(tx, { slug, status: 'suspended' }))
    },
    vms: () => inside.vms.ids(),
    addressOf: inside.addressOf,
    removeExpired: async days => {
      await passDays(days)
      return await removeExpired(
        {
          directory,
          clock: { ...systemClock, nowMs: () => nowMs() + days * dayMs },
          log: silentLogger,
          retentionDays: 30,
        },
        new AbortController().signal,
      )
    },
    stop: () => inside.abandon(),
  }
  return host
}
