// Service B's request path (contract 4.2): a plain dispatch on the path, because every microsecond here is added to every request.

import { createDeadlines } from '../../base/deadlines.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { createSchemaChecks } from '../openai/schema-check.ts'
import type { AdmitPublic } from '../types.ts'
import { UpstreamClient } from '../upstream/client.ts'
import { Router, type RouterView } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { createCatalog } from './catalog.ts'
import { type CompletionDeps, createCompletions } from './completion.ts'
import { commonHeaders, failureAnswer, isOurs, jsonAnswer, refusalAnswer, textAnswer } from './responses.ts'

export type GatewayDeps = Omit<
  CompletionDeps,
  'catalog' | 'router' | 'upstream' | 'schemas' | 'deadlines' | 'limits'
> & {
  readonly admitPublic: AdmitPublic
  /** Answers GET /attestation; may throw Faults. Null: 503. */
  readonly attestation: ((request: Request) => Response | Promise<Response>) | null
  /** The document that /openapi.json answers with. */
  readonly openapi: string
  readonly upstreams: readonly UpstreamTarget[]
  readonly ownedBy: string
  readonly limits: CompletionDeps['limits'] & {
    readonly connectTimeoutMs: number
    readonly queueMax: number
    readonly queueTimeoutMs: number
    readonly ejectFailures: number
    readonly ejectMs: number
  }
}

export type Gateway = {
  /** Never rejects. `address` gives the client's, for limits of the public endpoints; to ask for it is a system call. */
  readonly fetch: (request: Request, address: () => string) => Promise<Response>
  readonly view: () => RouterView
  /** An upstream is known to be well: if it is ejected it is probed now. */
  readonly probeNow: (upstream: string) => void
  /** Ends waiting and probing; what is under way goes on. */
  readonly close: () => void
}

type Route = {
  readonly methods: readonly string[]
  readonly isPublic: boolean
  readonly answer: (request: Request, id: string) => Response | Promise<Response>
}

export function createGateway(deps: GatewayDeps): Gateway {
  const { limits, clock } = deps
  const log = deps.log.unit('gateway')
  const catalog = createCatalog(deps.upstreams, deps.ownedBy)
  const timeouts = { connectMs: limits.connectTimeoutMs, firstByteMs: limits.firstByteTimeoutMs }
  const deadlines = createDeadlines(clock)
  const upstream = new UpstreamClient({ deadlines, timeouts })
  const { queueMax, queueTimeoutMs, ejectFailures, ejectMs } = limits
  const router = new Router<UpstreamTarget>({
    targets: deps.upstreams,
    probe: (target, signal) => upstream.probe(target, signal),
    clock,
    log,
    queueMax,
    queueTimeoutMs,
    ejectFailures,
    ejectMs,
  })
  const completions = createCompletions({
    ...deps,
    log,
    deadlines,
    catalog,
    router,
    upstream,
    schemas: createSchemaChecks(),
  })
  const models = JSON.stringify(catalog.list)

  const listModels = (request: Request, id: string) => {
    const headers = commonHeaders(id)
    const admission = deps.admit(deps.authenticate(request.headers), 0)
    if (!admission.ok) return refusalAnswer(admission.refusal, headers)
    admission.ticket.settle({ prompt: 0, completion: 0 })
    return textAnswer(models, 200, { ...headers, ...admission.ticket.headers })
  }
  const attest = (request: Request) => {
    if (deps.attestation === null) throw new Fault('attestation_unavailable', 'There is no fresh attestation evidence.')
    return deps.attestation(request)
  }

  const GET = ['GET', 'HEAD']
  const ROUTES: Readonly<Record<string, Route>> = {
    '/v1/chat/completions': {
      methods: ['POST'],
      isPublic: false,
      answer: (request, id) => completions.answer(request, 'chat', id),
    },
    '/v1/completions': {
      methods: ['POST'],
      isPublic: false,
      answer: (request, id) => completions.answer(request, 'text_completion', id),
    },
    '/v1/models': { methods: GET, isPublic: false, answer: listModels },
    '/health': {
      methods: GET,
      isPublic: true,
      answer: (_request, id) => jsonAnswer({ status: 'ok' }, 200, commonHeaders(id)),
    },
    '/attestation': { methods: GET, isPublic: true, answer: attest },
    '/openapi.json': {
      methods: GET,
      isPublic: true,
      answer: (_request, id) => textAnswer(deps.openapi, 200, commonHeaders(id)),
    },
  }
  const routes = new Map(Object.entries(ROUTES))

  const dispatch = (request: Request, address: () => string, id: string): Response | Promise<Response> => {
    const path = pathOf(request.url)
    const route = routes.get(path)
    if (route?.isPublic ?? !path.startsWith('/v1/')) {
      const refusal = deps.admitPublic(address())
      if (refusal !== null) return refusalAnswer(refusal, commonHeaders(id))
    } else if (!route?.methods.includes(request.method)) {
      // Without a key nothing under /v1/ is told, not even what there is.
      deps.authenticate(request.headers)
    }
    if (route === undefined) throw new Fault('not_found', 'There is no such route.')
    if (route.methods.includes(request.method)) return route.answer(request, id)
    const error = new Fault('method_not_allowed', `The methods here are ${route.methods.join(', ')}.`)
    return failureAnswer(error, { ...commonHeaders(id), allow: route.methods.join(', ') })
  }

  return {
    fetch: async (request, address) => {
      const id = requestId(deps.random, clock.nowMs())
      try {
        return await dispatch(request, address, id)
      } catch (error) {
        if (isOurs(error)) log.error('request failed', { request: id, error })
        return failureAnswer(error, commonHeaders(id))
      }
    },
    view: () => router.view(),
    probeNow: name => router.probeNow(name),
    close: () => {
      router.close()
      upstream.close()
    },
  }
}

/** The path of an absolute URL, as it was sent: no decoding, so that there is one spelling of each. */
function pathOf(url: string): string {
  const start = url.indexOf('/', url.indexOf('//') + 2)
  const query = url.indexOf('?', start)
  return start < 0 ? '/' : url.slice(start, query < 0 ? undefined : query)
}

/** A version 7 UUID (RFC 9562 5.7): ids that grow with time cost the ledger half of what random ones do, as its index grows at one end. */
function requestId(random: RandomBytes, nowMs: number): string {
  const time = Math.max(0, Math.floor(nowMs)).toString(16).padStart(12, '0')
  const bytes = random(10)
  bytes[0] = ((bytes[0] ?? 0) & 0x0f) | 0x70
  bytes[2] = ((bytes[2] ?? 0) & 0x3f) | 0x80
  const hex = bytes.toHex()
  return `${time.slice(0, 8)}-${time.slice(8)}-${hex.slice(0, 4)}-${hex.slice(4, 8)}-${hex.slice(8)}`
}
