// Service B's request path (contract 4.2): a plain dispatch, because its time is added to every request.

import { epochHeader, keyConfigMediaType } from '../../attest/ehbp/protocol.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import type { TextCache } from '../../base/work/text-cache.ts'
import type { GatewaySettings } from '../../contract/vm/workload.ts'
import { checkHost } from '../../http/head.ts'
import { joined } from '../../http/operations.ts'
import { dialectBelow } from '../dialects/dialects.ts'
import type { OwnEncryption } from '../encryption/encryption.ts'
import { NO_TOKENS } from '../metering/account.ts'
import type { Cost } from '../metering/price.ts'
import type { SpentSource } from '../metering/types.ts'
import type { StartSchemaProcess } from '../schema-check/child.ts'
import type { AdmitPublic, Authenticate, Caller, Encryption } from '../types.ts'
import { UpstreamClient } from '../upstream/client.ts'
import { Router, type RouterSettings, type RouterView } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import type { CompletionLimits, CompletionServices } from './completion.ts'
import { createCors } from './cors.ts'
import { apiKeyHeader, createEnter, type EnterDeps, type Entry, type EntryRequest, withKeyFrom } from './enter.ts'
import { createFront, type GatewayFetch } from './front.ts'
import { createCacheSalt, createMeteredRoutes, METERED } from './metered.ts'
import { createModelCatalog, type ModelCatalog, noSuchModel, servedModels } from './models.ts'
import { noSuchReceipt } from './receipts.ts'
import type { ResponseMemory } from './response-memory.ts'
import {
  commonHeaders,
  errorResponse,
  jsonResponse,
  jsonTextResponse,
  type ResponseHeaders,
  refusalResponse,
} from './responses.ts'
import { inputItems, inputPageOf, noKeptResponse, refuseStream, retrieveResponse } from './retrieve-response.ts'
import {
  GATEWAY_OPERATIONS,
  type GatewayOperation,
  type Handler,
  type HandlerTable,
  type Received,
  type Route,
  RouteTable,
  routesOf,
} from './routes.ts'
import { createUsageHandler } from './usage.ts'

export type GatewayDeps = Omit<CompletionServices, 'enter'> &
  EnterDeps & {
    readonly keptReceipts: TextCache
    readonly responses: ResponseMemory
    readonly admitPublic: AdmitPublic
    /** Responds to GET /attestation; may throw Faults. If null, the status is 503. */
    readonly attestation: ((request: Request, address: () => string) => Response | Promise<Response>) | null
    readonly encryption: OwnEncryption
    readonly spent: SpentSource
    /** The document of /openapi.json. */
    readonly openapi: string
    /** The document of /workload.json; null if the gateway does not run in a VM. */
    readonly workload: string | null
    readonly upstreams: readonly UpstreamTarget[]
    /** Verifies an upstream that must show evidence; resolves to true for any other. Default: no upstream must. */
    readonly checkEvidence?: (upstream: string) => Promise<boolean>
    /** Names of the upstreams that the attestation covers. */
    readonly inside: ReadonlySet<string>
    /** Returns the current prices. */
    readonly cost: () => Cost
    readonly random: RandomBytes
    /** Default: as a child of this process. */
    readonly startSchemaProcess?: StartSchemaProcess
    readonly log: Logger
    readonly limits: GatewayLimits
  }

export type GatewayLimits = CompletionLimits &
  RouterSettings &
  Pick<
    GatewaySettings,
    'connectTimeoutMs' | 'corsOrigins' | 'fallbacks' | 'ownedBy' | 'refusesUnknownFields' | 'responseReceipts'
  >

export type Gateway = {
  readonly fetch: GatewayFetch
  /** Decides for the processes that serve this gateway's clients (relay/). */
  readonly enter: (asked: EntryRequest) => Entry<Caller> | Promise<Entry<Caller>>
  readonly acquire: Router<UpstreamTarget>['acquire']
  readonly place: Router<UpstreamTarget>['place']
  /** Result of `createCacheSalt`. */
  readonly cacheSecret: Uint8Array
  readonly view: () => RouterView
  /** Probes the upstream now if it is ejected, because its supervisor has found it healthy. */
  readonly probeNow: (upstream: string) => void
  /** Ends waiting and probing; running requests continue. */
  readonly close: () => void
}

export function createGateway(given: GatewayDeps): Gateway {
  // Clients of any API list the models. Metered routes accept the headers of their own API.
  const authenticate: Authenticate = headers => given.authenticate(withKeyFrom(headers, apiKeyHeader))
  const deps = { ...given, authenticate }
  const { limits, clock } = deps
  const log = deps.log.unit('gateway')
  const deadlines = createDeadlines(clock)
  const upstream = new UpstreamClient({
    deadlines,
    timeouts: { connectMs: limits.connectTimeoutMs, firstByteMs: limits.firstByteTimeoutMs },
  })
  const router = new Router<UpstreamTarget>({
    ...limits,
    targets: deps.upstreams,
    // The upstream's key may have changed; then its evidence must name the new one.
    probe: async (target, signal) =>
      ((await deps.checkEvidence?.(target.name)) ?? true) && (await upstream.probe(target, signal)) === 200,
    mayServe: target => target.attestedKey !== null,
    clock,
    log,
  })
  const models = servedModels(deps.upstreams, deps.inside, limits.fallbacks)
  const enter = createEnter(given)
  const cacheSecret = deps.random(32)
  const metered = createMeteredRoutes({
    ...deps,
    log,
    deadlines,
    models,
    enter,
    router,
    upstream,
    cacheSalt: createCacheSalt(cacheSecret),
  })
  const created = Math.floor(clock.nowMs() / 1000)
  const catalog = createModelCatalog(models, { ...limits, ...deps, created })
  const routes = new RouteTable([...metered.routes, ...routesOf(READS, { ...deps, catalog })])

  const dispatch = (request: Request, path: string, received: Omit<Received, 'item'>): Response | Promise<Response> => {
    const { id, address } = received
    checkHost(request.headers)
    const found = routes.find(path)
    const route = found?.route
    if (route?.isPublic ?? !path.startsWith('/v1/')) {
      const refusal = deps.admitPublic(address())
      if (refusal !== null) return refusalResponse(refusal, commonHeaders(id))
    } else if (!route?.methods.includes(request.method)) {
      // Checks the key first: without one, a caller cannot learn which routes under /v1/ exist.
      deps.authenticate(request.headers)
    }
    if (found === null || route === undefined) throw routes.notFound(path, path.startsWith('/v1/'))
    if (route.methods.includes(request.method)) return route.respond(request, { ...received, item: found.item })
    const error = isWebSocket(request)
      ? new Fault('upgrade_required', `WebSockets are not supported: send ${route.methods.join(' or ')} over HTTP.`)
      : new Fault('method_not_allowed', `The methods here are ${route.methods.join(', ')}.`)
    const headers = { ...commonHeaders(id, route.dialect), allow: route.methods.join(', ') }
    return errorResponse(error, headers, route.dialect)
  }

  return {
    fetch: createFront({
      ...deps,
      log,
      dispatch,
      cors: createCors(limits.corsOrigins ?? []),
      dialectOf: path => routes.find(path)?.route.dialect ?? dialectBelow(path),
    }),
    enter,
    acquire: (model, options) => router.acquire(model, options),
    place: id => router.place(id),
    cacheSecret,
    view: () => router.view(),
    probeNow: name => router.probeNow(name),
    close: () => {
      router.close()
      upstream.close()
      metered.close()
    },
  }
}

/**
 * Reports whether the request opens a WebSocket. Codex tries one first: at 426 it continues over HTTP at once, at 405
 * only after 7 seconds.
 */
function isWebSocket({ method, headers }: Request): boolean {
  return method === 'GET' && headers.get('upgrade')?.toLowerCase() === 'websocket'
}

type GatewayReads = GatewayDeps & { readonly catalog: ModelCatalog }

const READS = {
  listModels: made =>
    keyed(made, (_item, { caller, headers }) => jsonTextResponse(made.catalog.listText(caller.rules), 200, headers)),
  retrieveModel: made =>
    keyed(made, (item, { caller, headers }) => {
      const text = made.catalog.textOf(item, caller.rules)
      return text === null ? errorResponse(noSuchModel(), headers) : jsonTextResponse(text, 200, headers)
    }),
  retrieveReceipt: made =>
    keyed(made, (item, { caller, headers }) => {
      const receipt = made.keptReceipts.find(item, caller.keyDigest)
      return receipt === null
        ? errorResponse(noSuchReceipt(made.keptReceipts), headers)
        : new Response(receipt, { headers: { ...headers, 'content-type': 'text/plain; charset=us-ascii' } })
    }),
  // Before retrieveResponse, whose ids may contain slashes.
  listInputItems: made =>
    keyed(made, async (item, { request, id, caller, headers }) => {
      const page = inputPageOf(request)
      const list = await inputItems(made.responses, item, { page, by: { keyDigest: caller.keyDigest, request: id } })
      return list === null ? errorResponse(noKeptResponse(), headers) : jsonResponse(list, 200, headers)
    }),
  retrieveResponse: made =>
    keyed(made, async (item, { request, id, caller, headers }) => {
      refuseStream(request)
      const response = await retrieveResponse(made.responses, item, { keyDigest: caller.keyDigest, request: id })
      return response === null ? errorResponse(noKeptResponse(), headers) : jsonResponse(response, 200, headers)
    }),
  retrieveUsage: made => plain(createUsageHandler(made)),
  health: () => plain((_request, { id }) => jsonResponse({ status: 'ok' }, 200, commonHeaders(id))),
  attestation: ({ attestation, encryption }) =>
    plain(async (request, { id, address }) => {
      if (attestation === null)
        throw new Fault('attestation_unavailable', 'Fresh attestation evidence is not available.')
      const response = await attestation(request, address)
      const more = { ...commonHeaders(id), [epochHeader]: encryption.epoch() }
      for (const [name, value] of Object.entries(more)) response.headers.set(name, value)
      if (!response.ok) response.headers.set('x-should-retry', String(response.status === 429))
      return response
    }),
  keyConfig: ({ encryption }) => plain((_request, { id }) => keyConfigResponse(encryption, id)),
  retrieveOpenapi: ({ openapi }) => plain((_request, { id }) => jsonTextResponse(openapi, 200, commonHeaders(id))),
  workload: ({ workload }) =>
    plain((_request, { id }) => {
      if (workload === null)
        throw new Fault('not_found', 'This gateway does not run in a VM, so it has no workload.json.')
      return jsonTextResponse(workload, 200, commonHeaders(id))
    }),
} as const satisfies HandlerTable<GatewayReads>

/** Every operation of the gateway; throws on load if one has no handler. */
export const GATEWAY_ROUTES = joined<GatewayOperation, unknown>(GATEWAY_OPERATIONS, { ...METERED, ...READS })

function plain(respond: Route['respond']): Handler {
  return { dialect: null, respond }
}

type KeyedRead = (
  item: string,
  read: { readonly request: Request; readonly id: string; readonly caller: Caller; readonly headers: ResponseHeaders },
) => Response | Promise<Response>

/** Handles a request that needs a key and costs no tokens. */
function keyed({ authenticate, admit }: Pick<GatewayDeps, 'authenticate' | 'admit'>, respond: KeyedRead): Handler {
  return plain((request, { id, item }) => {
    const headers = commonHeaders(id)
    const caller = authenticate(request.headers)
    const admission = admit(caller, 0)
    if (!admission.ok) return refusalResponse(admission.refusal, headers)
    admission.ticket.settle(NO_TOKENS)
    return respond(item, { request, id, caller, headers: { ...headers, ...admission.ticket.headers } })
  })
}

function keyConfigResponse({ keyConfig }: Encryption, id: string): Response {
  return new Response(keyConfig, { headers: { ...commonHeaders(id), 'content-type': keyConfigMediaType } })
}
