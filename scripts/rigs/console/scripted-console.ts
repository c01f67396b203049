// A console whose answers are scripted, with the real page under the real headers, for tests of the page alone.
// Effects: a listener on 127.0.0.1.

import type { TSchema } from '@sinclair/typebox'
import { ownGuarded, pageGuarded } from '../../../src/console/http/headers.ts'
import { buildPage } from '../../../src/console/page/build.ts'
import { fileResponse, servedFiles } from '../../../src/console/page/files.ts'
import {
  AdminBuild,
  AdminBuildList,
  AdminEventList,
  AdminGatewayKeyList,
  AdminInstance,
  AdminInstanceList,
  AdminKeyList,
  AdminLeaks,
  AdminOrganization,
  AdminOrganizationList,
  AdminStatus,
} from '../../../src/contract/admin/admin.ts'
import { AdminClock } from '../../../src/contract/admin/clock.ts'
import {
  AdminConsoleSessionList,
  AdminPasskeyList,
  SessionDocument,
  SignInDocument,
} from '../../../src/contract/admin/console.ts'
import { AdminDeletion } from '../../../src/contract/admin/deletion.ts'
import { AdminCommandList } from '../../../src/contract/admin/events.ts'
import { FleetHost, FleetHosts } from '../../../src/contract/admin/fleet.ts'
import { AdminGatewayVmLog, AdminGatewayVms } from '../../../src/contract/admin/gateway-vms.ts'
import { AdminLog, AdminLogEntries } from '../../../src/contract/admin/log.ts'
import { AdminUsage } from '../../../src/contract/admin/usage.ts'
import { AdminInstanceUsage } from '../../../src/contract/admin/views/instance-usage.ts'
import { AdminSearch } from '../../../src/contract/admin/views/search.ts'
import { checkValue } from '../../../src/contract/check.ts'
import { until } from '../until.ts'
import * as documents from './documents.ts'
import { INSTANCE_USAGE, SEARCH } from './views.ts'

export type RecordedRequest = { readonly method: string; readonly path: string; readonly body: unknown }
export type Answer = (request: Request, url: URL) => Response | Promise<Response>

export type ScriptedConsole = {
  readonly url: string
  /** Everything but reads, in order. */
  readonly changes: readonly RecordedRequest[]
  /** Gives a method and path another answer from now on. Returns the one before. */
  readonly answer: (route: string, answer: Answer) => Answer | null
  /** Says on the live stream that these topics changed. */
  readonly tell: (...topics: string[]) => Promise<void>
  /** Live streams that are open. */
  readonly streams: () => number
  /** Ends every live stream; new ones are refused until `true`. */
  readonly live: (isThere: boolean) => void
  readonly [Symbol.asyncDispose]: () => Promise<void>
}

/** The page is the same for all tests of a process. */
let built: ReturnType<typeof buildPage> | null = null

export async function scriptedConsole(): Promise<ScriptedConsole> {
  built ??= buildPage()
  const files = servedFiles(await built)
  const changes: RecordedRequest[] = []
  const routes = new Map<string, Answer>(Object.entries(ANSWERS))
  const streams = new Set<ReadableStreamDefaultController<Uint8Array>>()
  let isLive = true
  let scrapes = 0

  const live = (): Response => {
    if (!isLive) return new Response(null, { status: 503 })
    let own: ReadableStreamDefaultController<Uint8Array> | null = null
    const body = new ReadableStream<Uint8Array>({
      start: controller => {
        own = controller
        streams.add(controller)
        controller.enqueue(Buffer.from(': hello\n\n'))
      },
      cancel: () => {
        if (own !== null) streams.delete(own)
      },
    })
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } })
  }
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    development: false,
    idleTimeout: 0,
    fetch: async request => {
      const url = new URL(request.url)
      const route = `${request.method} ${url.pathname}`
      if (request.method !== 'GET') {
        const text = await request.clone().text()
        changes.push({
          method: request.method,
          path: url.pathname + url.search,
          body: text === '' ? null : JSON.parse(text),
        })
      }
      if (url.pathname === '/api/live') return ownGuarded(live())
      if (url.pathname === '/api/operator/metrics') return ownGuarded(new Response(documents.metricsText(scrapes++)))
      const answer = routes.get(route)
      if (answer !== undefined) return ownGuarded(await answer(request, url))
      const file = files.get(url.pathname)
      if (file !== undefined) return pageGuarded(fileResponse(file, request.headers))
      const isAsset = url.pathname.startsWith('/api/') || url.pathname.startsWith('/assets/')
      const index = files.get('/index.html')
      if (isAsset || index === undefined)
        return ownGuarded(refusalResponse(404, 'not_found', `no such route: ${route}`))
      return pageGuarded(fileResponse(index, request.headers))
    },
  })
  return {
    url: server.url.origin,
    changes,
    answer: (route, answer) => {
      const before = routes.get(route) ?? null
      routes.set(route, answer)
      return before
    },
    tell: async (...topics) => {
      // A page connects only after it has been drawn.
      await until('the page has its live stream', 15_000, () => streams.size > 0)
      for (const stream of streams)
        stream.enqueue(Buffer.from(`event: changed\ndata: ${JSON.stringify({ topics })}\n\n`))
    },
    streams: () => streams.size,
    live: isThere => {
      isLive = isThere
      if (isThere) return
      for (const stream of streams) stream.close()
      streams.clear()
    },
    [Symbol.asyncDispose]: async () => {
      await server.stop(true)
    },
  }
}

/** Throws where the document is not of the contract, so that no test relies on one that the appliance cannot send. */
export function document(schema: TSchema, value: unknown, status = 200): Response {
  const result = checkValue(schema, value)
  if (!result.ok) throw new Error(`scripted document: ${result.problem}`)
  return Response.json(value, { status })
}

export function refusalResponse(status: number, code: string, message: string, param?: string): Response {
  return Response.json({ error: { code, message, ...(param === undefined ? {} : { param }) } }, { status })
}

const operator = '/api/operator'
const acme = `${operator}/organizations/acme`

const ANSWERS: Readonly<Record<string, Answer>> = {
  'GET /api/session': () => document(SessionDocument, documents.SESSION),
  'GET /api/sign-in': () => document(SignInDocument, { oidc: null }),
  'DELETE /api/session': () => new Response(null, { status: 204 }),
  [`GET ${operator}/console/passkeys`]: () => document(AdminPasskeyList, { passkeys: documents.PASSKEYS }),
  [`GET ${operator}/console/sessions`]: () => document(AdminConsoleSessionList, { sessions: documents.SESSIONS }),
  [`GET ${operator}/status`]: () => document(AdminStatus, documents.BUSY_STATUS),
  [`GET ${operator}/organizations`]: () =>
    document(AdminOrganizationList, {
      organizations: [
        documents.organization('acme'),
        documents.organization('a-very-long-organization-slug-01', { status: 'suspended', budget_usd: null }),
        documents.organization('zeta', {
          instances_living: 0,
          instances_failed: 0,
          month_cost_usd: '0.000000000',
          month_tokens: 0,
        }),
      ],
    }),
  [`GET ${acme}`]: () => document(AdminOrganization, documents.organization('acme')),
  [`GET ${acme}/keys`]: () => document(AdminKeyList, { keys: documents.API_KEYS }),
  [`GET ${acme}/gateway-keys`]: () => document(AdminGatewayKeyList, { keys: documents.GATEWAY_KEYS }),
  [`GET ${acme}/usage`]: () => document(AdminUsage, documents.USAGE),
  [`GET ${acme}/deletion`]: () =>
    document(AdminDeletion, {
      ...{ slug: 'acme', deleting_at: null, deleted_at: null, instances: ['aaaaaaa1'], builds: [], reserved_vms: 0 },
      ...{ keys_active: 1, gateway_keys_active: 1, build_file_bytes: 0, records: 4, waits_for: [] },
    }),
  [`GET ${operator}/instances`]: () =>
    document(AdminInstanceList, {
      more: false,
      instances: [
        ...[1, 2, 3].map(number => documents.instance(number)),
        documents.instance(4, {
          ...{ status: 'failed', vm: null, organization: 'a-very-long-organization-slug-01' },
          ...{ failure_code: 'boot_failed', failure_message: documents.hostileText },
        }),
      ],
    }),
  [`GET ${operator}/instance`]: () =>
    document(
      AdminInstance,
      documents.instance(1, { failure_code: 'internal', failure_message: documents.hostileText }),
    ),
  [`GET ${operator}/instance/usage`]: () => document(AdminInstanceUsage, INSTANCE_USAGE),
  [`GET ${operator}/search`]: () => document(AdminSearch, SEARCH),
  [`GET ${operator}/instance/events`]: () => document(AdminEventList, { events: documents.EVENTS }),
  [`GET ${operator}/instance/console`]: () =>
    new Response(`[    0.000000] Linux version 6.12\n${documents.hostileText}\nagent started\n`),
  [`GET ${operator}/builds`]: () =>
    document(AdminBuildList, { builds: [documents.build(1, { state: 'running', result: null }), documents.build(2)] }),
  [`GET ${operator}/builds/${documents.build(2).id}`]: () =>
    document(AdminBuild, documents.build(2, { error_type: 'build_failed', error: documents.hostileText })),
  [`GET ${operator}/builds/${documents.build(2).id}/log`]: () =>
    new Response(`queued: 0 before it\nbuild: ${documents.hostileText}\ncomplete: ok\n`),
  [`GET ${operator}/inference`]: () => document(AdminGatewayVms, documents.GATEWAYS),
  [`GET ${operator}/inference/log`]: () =>
    document(AdminGatewayVmLog, { lines: [{ seq: 1, line: documents.hostileText }] }),
  [`GET ${operator}/events`]: () => document(AdminCommandList, { commands: documents.COMMANDS }),
  [`GET ${operator}/log`]: () => document(AdminLog, documents.LOG),
  [`GET ${operator}/log/entries`]: () => document(AdminLogEntries, documents.LOG_ENTRIES),
  [`GET ${operator}/clock`]: () => document(AdminClock, documents.BUSY_STATUS.clock),
  [`GET ${operator}/fleet/hosts`]: () => document(FleetHosts, { hosts: documents.FLEET_HOSTS }),
  ...Object.fromEntries(
    documents.FLEET_HOSTS.map(host => [`GET ${operator}/fleet/hosts/${host.name}`, () => document(FleetHost, host)]),
  ),
  [`GET ${operator}/leaks`]: () => document(AdminLeaks, { leaks: [] }),
}
