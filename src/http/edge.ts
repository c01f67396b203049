// The HTTP edge of services A and C, from a request to a response or failure: request id, path templates, HEAD,
// OPTIONS, 405, common headers, access log. Effects: the access log. The gateway has an edge of its own in
// inference/gateway: to save microseconds it writes no access log, adds its headers while it makes a response, and
// finds paths in a map.

import type { Clock } from '../base/clock.ts'
import { FAULTS, Fault, statusOf } from '../base/fault.ts'
import { type RandomBytes, randomName } from '../base/ids.ts'
import { parseJson } from '../base/json.ts'
import type { Logger, LogLevel } from '../base/log.ts'
import type { Deadlines } from '../base/work/deadlines.ts'
import type { Problem } from '../contract/http/problem.ts'
import type { AnonymousLogLimit } from './anonymous-log-limit.ts'
import { type BodyLimits, checkBodyHeaders, discardTooLarge, readBody } from './body.ts'
import { checkHost } from './head.ts'
import { retryAfterOf, storageFault, UnavailableFault } from './limited.ts'
import type { Operation } from './operations.ts'
import { failureHeaders, internalErrorMessage, isInternal } from './problem.ts'

/** A request under way. */
export type EdgeContext = {
  readonly request: Request
  readonly requestId: string
  /** Such as `/build/:id/events`; null for no route. The path itself is never logged. */
  readonly template: string | null
  /** Parts of the path as they were sent, not decoded. */
  readonly params: Readonly<Record<string, string>>
  /** Slug for the access log, once the caller is known. */
  organization: string | null
}

/**
 * `path`: a template such as `/build/{id}/events` or `/build/:id/events`. `Peer`: a service's view of the connection.
 * The route of GET serves HEAD, too: Bun leaves out the body.
 */
export type EdgeRoute<Peer = object> = Pick<Operation, 'method' | 'path'> & {
  readonly isPublic?: boolean
  readonly respond: (context: Peer & EdgeContext) => Response | Promise<Response>
}

export type EdgeDeps<Peer> = {
  readonly log: Logger
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly random: RandomBytes
  readonly strangers: Pick<AnonymousLogLimit, 'level'>
  readonly routes: readonly EdgeRoute<Peer>[]
  /** Longest part of a path that matches a parameter; no limit when left out. */
  readonly paramCharsMax?: number
  /** Asked before each request that is no read; may throw. */
  readonly admitChange: () => void
  /** The JSON document of a failure. */
  readonly failureDocument: (context: EdgeContext, error: Problem) => object
  /** Headers of every response, besides the common ones. */
  readonly headers?: (context: EdgeContext) => Readonly<Record<string, string>>
  /** Called before a 405 names the methods of a path that is not public; may throw. */
  readonly beforeMethods?: (context: Peer & EdgeContext) => void
}

/** Never rejects: every request gets a response. */
export type EdgeFetch<Peer> = (request: Request, peer: Peer) => Promise<Response>

export function createEdge<Peer extends object>(deps: EdgeDeps<Peer>): EdgeFetch<Peer> {
  const { log, clock, random, strangers } = deps
  const templates = templatesOf(deps.routes, deps.paramCharsMax)

  const fail = (context: EdgeContext, thrown: unknown, headers: Readonly<Record<string, string>> = {}): Response => {
    const isOurs = isUnexpected(thrown)
    if (isOurs) log.error('request failed', { request_id: context.requestId, error: describe(thrown) })
    const error = storageFault(thrown) ?? thrown
    const status = error instanceof Fault ? statusOf(error.code) : 500
    const seconds = retryAfterOf(error)
    const retryAfter = seconds === null ? {} : { 'Retry-After': String(seconds) }
    const all = { ...headers, ...retryAfter, ...failureHeaders(status) }
    return Response.json(deps.failureDocument(context, problemOf(error)), { status, headers: all })
  }
  const respond = (found: TemplateMatch<Peer> | null, context: Peer & EdgeContext): Response | Promise<Response> => {
    checkHost(context.request.headers)
    if (found === null) throw new Fault('not_found', 'There is nothing at this path.')
    const { routes, allow } = found.template
    const method = context.request.method === 'HEAD' ? 'GET' : context.request.method
    const route = routes.find(route => route.method === method)
    if (route !== undefined) {
      if (route.method !== 'GET') deps.admitChange()
      return route.respond(context)
    }
    const headers = { Allow: allow }
    if (method === 'OPTIONS') return new Response(null, { status: 204, headers })
    if (!routes.some(({ isPublic }) => isPublic === true)) deps.beforeMethods?.(context)
    return fail(context, new Fault('method_not_allowed', `The methods here are ${allow}.`), headers)
  }

  return async (request, peer) => {
    const startedMs = clock.monotonicMs()
    const found = findTemplate(templates, pathOf(request.url))
    const context: Peer & EdgeContext = {
      ...peer,
      request,
      requestId: `req_${randomName(24, random)}`,
      template: found?.template.path ?? null,
      params: found?.params ?? {},
      organization: null,
    }
    let response: Response
    try {
      response = await respond(found, context)
    } catch (error) {
      response = fail(context, error)
    }
    const wanted = accessLevel(request.method, response.status)
    const level = context.organization === null ? strangers.level(wanted) : wanted
    // A host of the fleet that the request was passed on to has answered by an id of its own.
    const requestId = response.headers.get('X-Request-ID') ?? context.requestId
    log[level]('request', {
      method: request.method,
      path: context.template ?? '(unknown)',
      status: response.status,
      ms: Math.round(clock.monotonicMs() - startedMs),
      request_id: requestId,
      organization: context.organization,
    })
    const common = {
      'X-Request-ID': requestId,
      'Cache-Control': 'no-store',
      'X-Content-Type-Options': 'nosniff',
    }
    const all = { ...common, ...deps.headers?.(context) }
    for (const [name, value] of Object.entries(all)) {
      // A response that never changes may be kept.
      if (name === 'Cache-Control' && response.headers.has(name)) continue
      response.headers.set(name, value)
    }
    return response
  }
}

type Template<Peer> = {
  readonly path: string
  readonly pattern: RegExp
  readonly routes: readonly EdgeRoute<Peer>[]
  readonly allow: string
}
type TemplateMatch<Peer> = { readonly template: Template<Peer>; readonly params: Readonly<Record<string, string>> }

function templatesOf<Peer>(routes: readonly EdgeRoute<Peer>[], paramCharsMax?: number): Template<Peer>[] {
  return [...Map.groupBy(routes, ({ path }) => path.replaceAll(/\{([a-z]+)\}/g, ':$1'))].map(([path, own]) => {
    const methods = own.map(route => route.method)
    const all = [...methods, ...(methods.includes('GET') ? ['HEAD'] : []), 'OPTIONS']
    const part = `(?<$1>[^/]{1,${paramCharsMax ?? ''}})`
    const pattern = new RegExp(`^${path.replaceAll('.', '\\.').replace(/:([a-z]+)/g, part)}$`)
    return { path, pattern, routes: own, allow: all.sort().join(', ') }
  })
}

function findTemplate<Peer>(templates: readonly Template<Peer>[], path: string): TemplateMatch<Peer> | null {
  for (const template of templates) {
    const match = template.pattern.exec(path)
    if (match !== null) return { template, params: { ...match.groups } }
  }
  return null
}

/** The path as it was sent. A URL without an origin comes from HTTP/1.0, or from a malformed Host header. */
function pathOf(url: string): string {
  const origin = /^https?:\/\/[^/?#]*/.exec(url)?.[0] ?? ''
  return url.slice(origin.length).split(/[?#]/, 1)[0] ?? ''
}

/** Successful reads are frequent and logged as debug. The cause of a 5xx is already logged as an error. */
function accessLevel(method: string, status: number): LogLevel {
  if (status >= 500) return 'warn'
  return status < 400 && ['GET', 'HEAD', 'OPTIONS'].includes(method) ? 'debug' : 'info'
}

/** Whether a failure is ours, and its message must not reach the client. */
function isUnexpected(error: unknown): boolean {
  return isInternal(error) && !(error instanceof UnavailableFault)
}

function problemOf(error: unknown): Problem {
  if (!(error instanceof Fault) || isUnexpected(error)) return { code: 'internal_error', message: internalErrorMessage }
  const param = error.param === undefined ? {} : { param: error.param }
  return { code: FAULTS[error.code].wire, message: error.message, ...param }
}

/** For the log only. */
function describe(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error)
  const cause = error.cause === undefined ? undefined : describe(error.cause)
  return { name: error.name, message: error.message, code: Reflect.get(error, 'code'), stack: error.stack, cause }
}

export type JsonLimits = BodyLimits & { readonly depthMax: number }

/** The body as strict JSON. Faults: invalid_request, body_too_large, body_timeout. */
export async function readJson(request: Request, limits: JsonLimits, deadlines: Deadlines): Promise<unknown> {
  try {
    checkBodyHeaders(request.headers, { bytesMax: limits.bytesMax, charset: 'utf-8' })
  } catch (error) {
    await discardTooLarge(error, request, deadlines)
    throw error
  }
  return parseJson(await readBody(request, limits, deadlines), limits)
}
