// Service A over HTTP: one Elysia app between a request and its envelope. Effects: the access log.
// Routes return data or throw Faults; everything on the wire around that is decided here.

import { type AnyElysia, Elysia, NotFoundError } from 'elysia'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { type BodyLimits, readJson } from '../../http/body.ts'
import type { Authenticate } from './auth.ts'
import { type Exchange, failure, isInternal, openExchange, stamp, success } from './envelope.ts'
import type { Edge } from './routes.ts'

export type HttpDeps = {
  readonly log: Logger
  readonly clock: Clock
  readonly random: RandomBytes
  readonly limits: BodyLimits
  readonly authenticate: Authenticate
  readonly routes: (edge: Edge) => AnyElysia
  /** Served at /openapi.json without authentication. */
  readonly openapi: object
}

export type Http = {
  /** Never rejects: every request gets an answer. */
  readonly fetch: (request: Request) => Promise<Response>
  readonly operations: readonly Operation[]
}

/** A method at a path template such as `/v1/instances/:name`. */
export type Operation = { readonly method: string; readonly path: string }

const PUBLIC_PATHS: readonly string[] = ['/openapi.json']

export function createHttp(deps: HttpDeps): Http {
  const exchanges = new WeakMap<Request, Exchange>()
  const exchangeOf = (request: Request): Exchange => {
    const exchange = exchanges.get(request)
    if (exchange === undefined) throw new Error('invariant broken: a request is answered within its exchange')
    return exchange
  }
  const fail = (request: Request, error: unknown, headers?: Record<string, string>): Response => {
    const exchange = exchangeOf(request)
    if (isInternal(error)) deps.log.error('request failed', { request_id: exchange.requestId, error: describe(error) })
    return failure(exchange, error, headers)
  }
  const edge: Edge = {
    caller: (request, need) => {
      const principal = deps.authenticate(request.headers, need)
      exchangeOf(request).organization = principal.organization.slug
      return principal
    },
    json: request => readJson(request, deps.limits, deps.clock),
  }
  const openapi = JSON.stringify(deps.openapi)

  const app = new Elysia({ name: 'service-a', normalize: false, strictPath: true })
    .mapResponse({ as: 'global' }, ({ request, responseValue, set }) =>
      responseValue instanceof Response
        ? responseValue
        : success(exchangeOf(request), Number(set.status ?? 200), responseValue),
    )
    .onError({ as: 'global' }, ({ request, path, error }) =>
      error instanceof NotFoundError ? offRoute(request, path) : fail(request, error),
    )
    .get('/openapi.json', () => new Response(openapi, { headers: { 'Content-Type': 'application/json' } }))
    .use(deps.routes(edge))

  const operations = app.routes.map(({ method, path }) => ({ method, path }))
  const templates = templatesOf(operations)

  /** No route: an unknown path, or a known one with another method, which first asks who is there. */
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
      const exchange = openExchange(received, { random: deps.random, monotonicMs: deps.clock.monotonicMs })
      const { request, path } = routable(received)
      exchanges.set(request, exchange)
      exchange.template = templates.find(({ pattern }) => pattern.test(path))?.path ?? null
      let response: Response
      try {
        response = await app.handle(request)
      } catch (error) {
        // Elysia 1.4.30 answers a thrown null or undefined by throwing itself.
        response = fail(request, error)
      }
      deps.log.info('request', {
        method: exchange.method,
        path: exchange.template ?? '(unknown)',
        status: response.status,
        ms: Math.round(deps.clock.monotonicMs() - exchange.startedMs),
        request_id: exchange.requestId,
        organization: exchange.organization,
      })
      return stamp(exchange, response)
    },
  }
}

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
 * The request as Elysia can route it. HEAD becomes GET (Bun leaves out the body of the answer). A URL whose path begins
 * where Elysia would not look, because the Host header is very short or, with HTTP/1.0 or a malformed one, there is no
 * origin at all, gets a host of our own.
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
