// Service B's request path (contract 4.2): a plain dispatch on the path, because every microsecond here is added to every request.

import { keyConfigMediaType, keyConfigPath } from '../../attest/ehbp/protocol.ts'
import { createDeadlines } from '../../base/deadlines.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { checkHost } from '../../http/head.ts'
import { createObfuscate } from '../openai/obfuscation.ts'
import { createSchemaChecks } from '../openai/schema-check-service.ts'
import { shapeOf } from '../shapes/shapes.ts'
import type { AdmitPublic, Caller, Encryption, Operation, SpentSource } from '../types.ts'
import { UpstreamClient } from '../upstream/client.ts'
import { Router, type RouterView } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { NO_TOKENS } from './accounting.ts'
import {
  type CompletionHandler,
  type CompletionLimits,
  type CompletionServices,
  createCompletionHandler,
  type MeteredHandler,
} from './completion.ts'
import { createEmbeddingsHandler } from './embeddings.ts'
import { createModelCatalog, noSuchModel, type ServedModels, servedModels } from './models.ts'
import { noSuchReceipt, receiptsPath } from './receipts.ts'
import {
  commonHeaders,
  errorResponse,
  isServerFailure,
  jsonResponse,
  jsonTextResponse,
  type ResponseHeaders,
  refusalResponse,
} from './responses.ts'
import { type Received, type Route, RouteTable } from './routes.ts'
import { createUsageHandler } from './usage.ts'

export type GatewayDeps = CompletionServices & {
  readonly admitPublic: AdmitPublic
  /** Responds to GET /attestation; may throw Faults. Null: 503. */
  readonly attestation: ((request: Request, address: () => string) => Response | Promise<Response>) | null
  readonly encryption: Encryption
  readonly spent: SpentSource
  /** The document of /openapi.json. */
  readonly openapi: string
  /** The document of /workload.json; null where the gateway has no VM of its own. */
  readonly workload: string | null
  readonly upstreams: readonly UpstreamTarget[]
  readonly ownedBy: string
  readonly random: RandomBytes
  readonly log: Logger
  readonly limits: GatewayLimits
}

export type GatewayLimits = CompletionLimits & {
  readonly connectTimeoutMs: number
  readonly queueMax: number
  readonly queueTimeoutMs: number
  readonly ejectFailures: number
  readonly ejectMs: number
  readonly refusesUnknownFields: boolean
}

export type Gateway = {
  /** Never rejects. `address` gives the client's, for the limits of the public endpoints; it is a function because it costs a system call. */
  readonly fetch: (request: Request, address: () => string) => Promise<Response>
  readonly view: () => RouterView
  /** Probes the upstream now if it is ejected, because whoever runs it has seen that it is healthy. */
  readonly probeNow: (upstream: string) => void
  /** Ends waiting and probing; requests under way go on. */
  readonly close: () => void
}

export function createGateway(deps: GatewayDeps): Gateway {
  const { limits, clock } = deps
  const log = deps.log.unit('gateway')
  const deadlines = createDeadlines(clock)
  const upstream = new UpstreamClient({
    deadlines,
    timeouts: { connectMs: limits.connectTimeoutMs, firstByteMs: limits.firstByteTimeoutMs },
  })
  const router = new Router<UpstreamTarget>({
    targets: deps.upstreams,
    probe: (target, signal) => upstream.probe(target, signal),
    clock,
    log,
    queueMax: limits.queueMax,
    queueTimeoutMs: limits.queueTimeoutMs,
    ejectFailures: limits.ejectFailures,
    ejectMs: limits.ejectMs,
  })
  const schemas = createSchemaChecks({ clock, deadlines, log })
  const models = servedModels(deps.upstreams)
  const parts = {
    ...deps,
    log,
    deadlines,
    models,
    router,
    upstream,
    cacheSalt: createCacheSalt(deps.random),
    refusesUnknownFields: limits.refusesUnknownFields,
  }
  const complete = createCompletionHandler({ ...parts, schemas, obfuscate: createObfuscate(deps.random) })
  const embed = createEmbeddingsHandler(parts)
  const routes = createRoutes(deps, { models, complete, embed })

  const dispatch = (request: Request, path: string, received: Omit<Received, 'item'>): Response | Promise<Response> => {
    const { id, address } = received
    checkHost(request.headers)
    const found = routes.find(path)
    const route = found?.route
    if (route?.isPublic ?? !path.startsWith('/v1/')) {
      const refusal = deps.admitPublic(address())
      if (refusal !== null) return refusalResponse(refusal, commonHeaders(id))
    } else if (!route?.methods.includes(request.method)) {
      // First the key: without one nobody learns which routes under /v1/ exist.
      deps.authenticate(request.headers)
    }
    if (found === null || route === undefined) throw routes.notFound(path, path.startsWith('/v1/'))
    if (route.methods.includes(request.method)) return route.respond(request, { ...received, item: found.item })
    const error = new Fault('method_not_allowed', `The methods here are ${route.methods.join(', ')}.`)
    return errorResponse(error, { ...commonHeaders(id), allow: route.methods.join(', ') }, route.shape)
  }

  return {
    fetch: async (request, address) => {
      const id = requestId(deps.random, clock.nowMs())
      const failed = (error: unknown) => {
        if (isServerFailure(error)) log.error('request failed', { request: id, error })
        return errorResponse(error, commonHeaders(id), routes.find(pathOf(request.url))?.route.shape)
      }
      try {
        const path = pathOf(request.url)
        const exchange = path.startsWith('/v1/') ? deps.encryption.begin(request) : null
        const received = { id, address, exchange }
        if (exchange === null) return await dispatch(request, path, received)
        const respond = async () => dispatch(request, path, received)
        // The only way out: so no response to an encrypted request leaves in the clear.
        return await exchange.encrypt(await respond().catch(failed))
      } catch (error) {
        return failed(error)
      }
    },
    view: () => router.view(),
    probeNow: name => router.probeNow(name),
    close: () => {
      router.close()
      upstream.close()
      schemas.close()
    },
  }
}

/** Salts that nobody outside can guess: who could, would read from the time of an answer what another organization has asked. */
function createCacheSalt(random: RandomBytes): (organizationId: string) => string {
  const secret = random(32)
  return organizationId => new Bun.CryptoHasher('sha256', secret).update(organizationId).digest('base64url')
}

type RouteDeps = {
  readonly models: ServedModels
  readonly complete: CompletionHandler
  readonly embed: MeteredHandler<'embeddings'>
}

function createRoutes(deps: GatewayDeps, { models, complete, embed }: RouteDeps): RouteTable {
  const created = Math.floor(deps.clock.nowMs() / 1000)
  const catalog = createModelCatalog(models, { created, ownedBy: deps.ownedBy })
  /** Of requests that need a key and cost no tokens. */
  const read =
    (respond: (item: string, read: { caller: Caller; headers: ResponseHeaders }) => Response): Route['respond'] =>
    (request, { id, item }) => {
      const headers = commonHeaders(id)
      const caller = deps.authenticate(request.headers)
      const admission = deps.admit(caller, 0)
      if (!admission.ok) return refusalResponse(admission.refusal, headers)
      admission.ticket.settle(NO_TOKENS)
      return respond(item, { caller, headers: { ...headers, ...admission.ticket.headers } })
    }
  const listModels = read((_item, { caller, headers }) =>
    jsonTextResponse(catalog.listText(caller.rules), 200, headers),
  )
  const showModel = read((item, { caller, headers }) => {
    const text = catalog.textOf(item, caller.rules)
    return text === null ? errorResponse(noSuchModel(), headers) : jsonTextResponse(text, 200, headers)
  })
  const showReceipt = read((item, { caller, headers }) => {
    const receipt = deps.keptReceipts.find(item, caller.organizationId)
    return receipt === null
      ? errorResponse(noSuchReceipt(deps.keptReceipts), headers)
      : new Response(receipt, { headers: { ...headers, 'content-type': 'text/plain; charset=us-ascii' } })
  })
  const attest: Route['respond'] = async (request, { id, address }) => {
    if (deps.attestation === null) throw new Fault('attestation_unavailable', 'There is no fresh attestation evidence.')
    const response = await deps.attestation(request, address)
    for (const [name, value] of Object.entries(commonHeaders(id))) response.headers.set(name, value)
    if (!response.ok) response.headers.set('x-should-retry', String(response.status === 429))
    return response
  }
  const showWorkload: Route['respond'] = (_request, { id }) => {
    if (deps.workload === null) throw new Fault('not_found', 'This gateway has no VM of its own, and no workload.json.')
    return jsonTextResponse(deps.workload, 200, commonHeaders(id))
  }
  const post = <Asked extends Operation>(operation: Asked, handle: MeteredHandler<Asked>): Route => ({
    methods: ['POST'],
    isPublic: false,
    shape: shapeOf(operation),
    respond: (request, received) => handle(request, { operation, ...received }),
  })
  const get = (isPublic: boolean, respond: Route['respond']): Route => ({
    methods: ['GET', 'HEAD'],
    isPublic,
    shape: null,
    respond,
  })
  return new RouteTable([
    ['/v1/chat/completions', post('chat', complete)],
    ['/v1/completions', post('text_completion', complete)],
    ['/v1/responses', post('responses', complete)],
    ['/v1/messages', post('messages', complete)],
    ['/v1/embeddings', post('embeddings', embed)],
    ['/v1/models', get(false, listModels)],
    ['/v1/models/{id}', get(false, showModel)],
    [`${receiptsPath}{id}`, get(false, showReceipt)],
    ['/v1/usage', get(false, createUsageHandler(deps))],
    ['/health', get(true, (_request, { id }) => jsonResponse({ status: 'ok' }, 200, commonHeaders(id)))],
    ['/attestation', get(true, attest)],
    [keyConfigPath, get(true, (_request, { id }) => keyConfigResponse(deps.encryption, id))],
    ['/openapi.json', get(true, (_request, { id }) => jsonTextResponse(deps.openapi, 200, commonHeaders(id)))],
    ['/workload.json', get(true, showWorkload)],
  ])
}

function keyConfigResponse({ keyConfig }: Encryption, id: string): Response {
  return new Response(keyConfig, { headers: { ...commonHeaders(id), 'content-type': keyConfigMediaType } })
}

/** The path of an absolute URL, as it was sent: not decoded, so that each route has one spelling. */
function pathOf(url: string): string {
  const start = url.indexOf('/', url.indexOf('//') + 2)
  const query = url.indexOf('?', start)
  return start < 0 ? '/' : url.slice(start, query < 0 ? undefined : query)
}

/** A version 7 UUID (RFC 9562 5.7): ids that grow with time cost the ledger half of what random ones cost, because its index grows at one end. */
function requestId(random: RandomBytes, nowMs: number): string {
  const time = Math.max(0, Math.floor(nowMs)).toString(16).padStart(12, '0')
  const bytes = random(10)
  bytes[0] = ((bytes[0] ?? 0) & 0x0f) | 0x70
  bytes[2] = ((bytes[2] ?? 0) & 0x3f) | 0x80
  const hex = bytes.toHex()
  return `${time.slice(0, 8)}-${time.slice(8)}-${hex.slice(0, 4)}-${hex.slice(4, 8)}-${hex.slice(8)}`
}
