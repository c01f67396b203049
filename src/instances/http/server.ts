// Service A over HTTP: one Elysia app between a request and its envelope. Effects: the access log.
// Routes return data or throw Faults; everything on the wire around that is decided here.

import { type AnyElysia, Elysia, NotFoundError } from 'elysia'
import { present } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger, LogLevel } from '../../base/log.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import { type JsonLimits, readJson } from '../../http/body.ts'
import { checkHost } from '../../http/head.ts'
import { storageFault } from '../../http/limited.ts'
import type { RequestRate } from '../../http/rate.ts'
import { createStrangerLines } from '../../http/stranger-lines.ts'
import type { Authenticate } from './auth.ts'
import { failureResponse, isUnexpected, openContext, type RequestContext, stamp, successResponse } from './envelope.ts'
import type { Edge } from './routes.ts'

export type HttpDeps = {
  readonly log: Logger
  readonly clock: Clock
  readonly random: RandomBytes
  readonly limits: JsonLimits
  readonly authenticate: Authenticate
  readonly rate: Pick<RequestRate, 'take'>
  readonly routes: (edge: Edge) => AnyElysia
  /** Served at /openapi.json without authentication. */
  readonly openapi: object
}

export type Http = {
  /** Never rejects: every request gets a response. */
  readonly fetch: (request: Request) => Promise<Response>
  readonly operations: readonly Operation[]
}

/** A method at a path template such as `/v1/instances/:name`. */
export type Operation = { readonly method: string; readonly path: string }

const PUBLIC_PATHS: readonly string[] = ['/openapi.json']

export function createHttp(deps: HttpDeps): Http {
  const contexts = new WeakMap<Request, RequestContext>()
  const deadlines = createDeadlines(deps.clock)
  const strangerLines = createStrangerLines(deps.clock)
  const contextOf = (request: Request) => present(contexts.get(request), 'a request under way has a context')
  const fail = (request: Request, error: unknown, headers?: Record<string, string>): Response => {
    const context = contextOf(request)
    if (isUnexpected(error)) deps.log.error('request failed', { request_id: context.requestId, error: describe(error) })
    return failureResponse(context, storageFault(error) ?? error, headers)
  }
  const edge: Edge = {
    caller: (request, need) => {
      const principal = deps.authenticate(request.headers, need)
      contextOf(request).organization = principal.organization.slug
      deps.rate.take(principal.keyPrefix)
      return principal
    },
    json: request => readJson(request, deps.limits, deadlines),
  }
  const openapi = JSON.stringify(deps.openapi)

  const app = new Elysia({ name: 'service-a', normalize: false, strictPath: true })
    .mapResponse({ as: 'global' }, ({ request, responseValue, set }) =>
      responseValue instanceof Response
        ? responseValue
        : successResponse(contextOf(request), Number(set.status ?? 200), responseValue),
    )
    .onError({ as: 'global' }, ({ request, path, error }) =>
      error instanceof NotFoundError ? offRoute(request, path) : fail(request, error),
    )
    .get('/openapi.json', () => new Response(openapi, { headers: { 'Content-Type': 'application/json' } }))
    .use(deps.routes(edge))

  const operations = app.routes.map(({ method, path }) => ({ method, path }))
  const templates = templatesOf(operations)

  /** No route: an unknown path, or a known path with another method, where the caller is authenticated first. */
  const offRoute = (request: Request, path: string): Response => {
    const template = templates.find(({ pattern }) => pattern.test(path))
    if (template === undefined) return fail(request, new Fault('not_found', 'There is nothing at this path.'))
    const headers = { Allow: template.allow }
    if (request.method === 'OPTIONS') return new Response(null, { status: 204, headers })
    try {
      if (!PUBLIC_PATHS.includes(template.path)) edge.caller(request, 'read')
    } catch (error) {
      return fail(request, error)
    }
    return fail(request, new Fault('method_not_allowed', `The methods here are ${template.allow}.`), headers)
  }

  return {
    operations,
    fetch: async received => {
      const context = openContext(received, { random: deps.random, monotonicMs: deps.clock.monotonicMs })
      const { request, path } = routable(received)
      contexts.set(request, context)
      context.template = templates.find(({ pattern }) => pattern.test(path))?.path ?? null
      let response: Response
      try {
        checkHost(received.headers)
        response = await app.handle(request)
      } catch (error) {
        // A second Host header. And Elysia 1.4.30 itself throws when a handler throws null or undefined.
        response = fail(request, error)
      }
      const wanted = accessLevel(context.method, response.status)
      const { level, more } = context.organization === null ? strangerLines(wanted) : { level: wanted, more: {} }
      deps.log[level]('request', {
        method: context.method,
        path: context.template ?? '(unknown)',
        status: response.status,
        ms: Math.round(deps.clock.monotonicMs() - context.startedMs),
        request_id: context.requestId,
        organization: context.organization,
        ...more,
      })
      return stamp(context, response)
    },
  }
}

/** Reads that succeed are many and say little; a failure of ours has been logged as an error with its cause already. */
function accessLevel(method: string, status: number): LogLevel {
  if (status >= 500) return 'warn'
  return status < 400 && READS.includes(method) ? 'debug' : 'info'
}

const READS: readonly string[] = ['GET', 'HEAD', 'OPTIONS']

type Template = { readonly path: string; readonly pattern: RegExp; readonly allow: string }

function templatesOf(operations: readonly Operation[]): Template[] {
  const paths = [...new Set(operations.map(({ path }) => path))]
  return paths.map(path => {
    const methods = operations.filter(operation => operation.path === path).map(({ method }) => method)
    if (methods.includes('GET')) methods.push('HEAD')
    return {
      path,
      pattern: new RegExp(`^${path.replaceAll('.', '\\.').replace(/:[a-z]+/g, '[^/]+')}$`),
      allow: [...methods, 'OPTIONS'].sort().join(', '),
    }
  })
}

/** Where Elysia 1.4.30 begins to look for the path in a URL, whatever the length of the host name before it. */
const pathSearchStart = 'http://a.bc'.length

/**
 * The request as Elysia can route it. HEAD becomes GET (Bun leaves out the body of the response). A URL whose path begins
 * where Elysia would not look gets a host of our own: its Host header is very short, or it has no origin at all
 * (HTTP/1.0, or a malformed header).
 */
function routable(received: Request): { request: Request; path: string } {
  const { url } = received
  const origin = /^https?:\/\/[^/?#]*/.exec(url)?.[0] ?? ''
  const target = url.slice(origin.length)
  const path = target.split(/[?#]/, 1)[0] ?? ''
  const routableUrl = origin.length >= pathSearchStart ? url : `http://host.invalid${target}`
  if (routableUrl === url && received.method !== 'HEAD') return { request: received, path }
  const { headers, body } = received
  const method = received.method === 'HEAD' ? 'GET' : received.method
  return { request: new Request(routableUrl, method === 'GET' ? { headers } : { method, headers, body }), path }
}

/** For the log only. */
function describe(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error)
  const cause = error.cause === undefined ? undefined : describe(error.cause)
  return { name: error.name, message: error.message, stack: error.stack, cause }
}
