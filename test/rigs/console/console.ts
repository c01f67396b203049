// A console over TLS with a real admin interface behind it, on one organization with one instance. Effects: a listening
// socket, a temporary folder, a database in memory.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { composeConsole } from '../../../src/appliance/console/console.ts'
import type { Services } from '../../../src/appliance/console/tenant.ts'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { type Logger, silentLogger } from '../../../src/base/log.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { Config } from '../../../src/config/schema.ts'
import { createTls } from '../../../src/http/certificate.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { mintKey } from '../../../src/instances/http/auth.ts'
import type { Administrator, Caller } from '../../../src/operator/access/caller.ts'
import type { MaintenanceMode } from '../../../src/operator/maintenance/mode.ts'
import { RequestCounts } from '../../../src/operator/metrics/request-counts.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { insertKey } from '../../../src/store/directory/key.query.ts'
import { findOrganization, insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { type ChangeGate, openGate } from '../../../src/upgrade/gate.ts'
import { STATUS } from '../admin-status.ts'
import { egressAdmin } from '../instances/egress-admin.ts'

export type ConsoleRig = AsyncDisposable & Awaited<ReturnType<typeof startConsole>>

type Options = {
  readonly names?: readonly string[]
  readonly administrators?: readonly Administrator[]
  readonly maintenance?: Pick<MaintenanceMode, 'view'>
  readonly clock?: Clock
  readonly log?: Logger
  readonly settings?: Partial<Config['console']>
  readonly services?: Partial<Services>
  readonly gate?: Pick<ChangeGate, 'admitChange' | 'isOpen'>
}

/** `root`: asks the admin interface as root would on the socket. `send`: one request to the console, as it stands. */
export async function startConsole({
  names = [],
  administrators = [],
  settings = {},
  gate = openGate,
  ...given
}: Options = {}) {
  const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-console-'))
  const usual = defaultConfig()
  const config: Config = {
    ...usual,
    listen: { ...usual.listen, console: '127.0.0.1:0' },
    console: { ...usual.console, names: [...names], ...settings },
  }
  const runtime = { clock: given.clock ?? systemClock, random: systemRandom, log: given.log ?? silentLogger }
  const store = openStore(':memory:')
  const tls = await createTls({ config, stateDir, ...runtime, onEvent: () => {} })
  const console = composeConsole({
    ...{ ...runtime, config, stateDir, store, tls },
    gate: { admitChange: gate.admitChange, isOpen: gate.isOpen },
    maintenance: given.maintenance ?? { view: () => null },
    strangers: { level: wanted => wanted },
    requests: new RequestCounts(),
    services: { ...NO_SERVICES, ...given.services },
  })
  const { control } = console
  const { admin } = egressAdmin({ administrators, console: control, log: runtime.log, status: () => STATUS }, store)
  let answer: ((request: Request) => Response) | null = null
  console.attach({ ...admin, handle: async (...asked) => answer?.(asked[0]) ?? admin.handle(...asked) })
  const server = console.listen()
  const ca = tls.caFile === null ? '' : readFileSync(tls.caFile, 'utf8')
  const origin = `https://localhost:${server.port}`
  const send = (path: string, init: RequestInit & { readonly headers?: Record<string, string> } = {}) =>
    // A connection for each: one that a test cut off must not carry the next request.
    fetch(`${origin}${path}`, { ...init, keepalive: false, tls: { ca } })
  const asRoot = (method: string, path: string, body?: unknown, caller: Caller = ROOT) =>
    admin.handle(
      new Request(`http://strongroom${path}`, { method, ...(body === undefined ? {} : jsonBody(body)) }),
      caller,
    )
  return {
    ...{ admin, store, origin, ca, port: server.port, config, stateDir, send, asRoot },
    /** From now on the console's part for operators gets these answers. */
    answerWith: (given: (request: Request) => Response) => {
      answer = given
    },
    [Symbol.asyncDispose]: async () => {
      console.stop()
      await server.stop(true)
      tls.stop()
      store.close()
      rmSync(stateDir, { recursive: true, force: true })
    },
  }
}

const NO_SERVICES: Services = {
  instances: { fetch: async () => new Response('no service', { status: 404 }) },
  builds: null,
  gateway: { url: null, fetch: null },
}

const ROOT: Caller = { uid: 0, gid: 0, pid: 1, socket: 'admin' }

function jsonBody(body: unknown) {
  return { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }
}

/** Headers of a page of the console that sends JSON. */
export function pageHeaders(origin: string, cookie = ''): Record<string, string> {
  const own = { origin, 'sec-fetch-site': 'same-origin', 'content-type': 'application/json' }
  return cookie === '' ? own : { ...own, cookie }
}

/** The secret of a new link, for whom `asked` says. */
export async function linkToken(
  { asRoot }: Pick<ConsoleRig, 'asRoot'>,
  asked: { readonly as?: string; readonly role?: string } = {},
): Promise<string> {
  const response = await asRoot('POST', '/console/links', asked)
  const { url } = (await response.json()) as { url: string }
  return new URL(url).hash.slice('#token='.length)
}

/** Logs in by a new link. Returns the cookie. */
export async function logIn(
  rig: Pick<ConsoleRig, 'asRoot' | 'send' | 'origin'>,
  asked: { readonly as?: string; readonly role?: string } = {},
): Promise<string> {
  const token = await linkToken(rig, asked)
  const body = JSON.stringify({ token })
  const response = await rig.send('/api/session', { method: 'POST', headers: pageHeaders(rig.origin), body })
  return cookieOf(response)
}

const NO_TERMS = {
  instanceId: null,
  requestsPerMinute: null,
  tokensPerMinute: null,
  concurrencyMax: null,
  expiresAtMs: null,
}

/** A new key of this organization, which is created at its first key. */
export function tenantKey({ store }: Pick<ConsoleRig, 'store'>, kind: 'ca' | 'gw', slug = 'tenant'): string {
  const { db } = store.directory
  const nowMs = Date.now()
  if (findOrganization(db, slug) === null) insertOrganization(db, { id: `id of ${slug}`, slug, nowMs })
  const { key, prefix, secretSha256 } = kind === 'ca' ? mintKey(systemRandom) : mintGatewayKey(systemRandom)
  const row = { prefix, secretSha256, organizationId: `id of ${slug}`, nowMs }
  const isNew =
    kind === 'ca' ? insertKey(db, { ...row, scope: 'write' }) : insertGatewayKey(db, { ...row, ...NO_TERMS })
  if (!isNew) throw new Error('its prefix is taken')
  return key
}

export function cookieOf(response: Response): string {
  return response.headers.get('set-cookie')?.split(';')[0] ?? ''
}
