// Service C over HTTP (contract 4.3): a dispatch on the path, between a request and its response or problem. Effects: the access log.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { type RandomBytes, randomName } from '../../base/ids.ts'
import type { Logger, LogLevel } from '../../base/log.ts'
import { checkHost } from '../../http/head.ts'
import { storageFault } from '../../http/limited.ts'
import { createStrangerLines } from '../../http/stranger-lines.ts'
import { isUnexpected, problemResponse } from './problem.ts'

/** A request under way. */
export type BuildHttpContext = {
  readonly request: Request
  /** GET for a HEAD: Bun leaves out the body. */
  readonly method: string
  readonly params: Readonly<Record<string, string>>
  /** The client's; a function because it costs a system call. */
  readonly address: () => string
  /** From now on this response may pause for longer than other ones. */
  readonly mayPause: () => void
  /** For the log. */
  readonly noteOrganization: (slug: string | null) => void
}

export type BuildRoute = {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** Such as `/build/:id/events`. */
  readonly path: string
  readonly respond: (context: BuildHttpContext) => Response | Promise<Response>
}

export type BuildHttpDeps = {
  readonly log: Logger
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly random: RandomBytes
  readonly routes: readonly BuildRoute[]
}

export type Peer = Pick<BuildHttpContext, 'address' | 'mayPause'>

export type BuildHttp = {
  /** Never rejects: every request gets a response. */
  readonly fetch: (request: Request, peer: Peer) => Promise<Response>
}

export function createBuildHttp({ log, clock, random, routes }: BuildHttpDeps): BuildHttp {
  const templates = templatesOf(routes)
  const strangerLines = createStrangerLines(clock)
  return {
    fetch: async (request, peer) => {
      const startedMs = clock.monotonicMs()
      const requestId = `req_${randomName(24, random)}`
      const path = pathOf(request.url)
      const found = findTemplate(templates, path)
      let organization: string | null = null
      let response: Response
      try {
        checkHost(request.headers)
        response = await dispatch(found, {
          request,
          ...peer,
          noteOrganization: slug => {
            organization = slug
          },
        })
      } catch (error) {
        if (isUnexpected(error)) log.error('request failed', { request_id: requestId, error })
        response = problemResponse(storageFault(error) ?? error)
      }
      const wanted = accessLevel(request.method, response.status)
      const { level, more } = organization === null ? strangerLines(wanted) : { level: wanted, more: {} }
      log[level]('request', {
        method: request.method,
        path: found?.template.path ?? '(unknown)',
        status: response.status,
        ms: Math.round(clock.monotonicMs() - startedMs),
        request_id: requestId,
        organization,
        ...more,
      })
      response.headers.set('X-Request-ID', requestId)
      response.headers.set('Cache-Control', 'no-store')
      response.headers.set('X-Content-Type-Options', 'nosniff')
      return response
    },
  }
}

type Template = {
  readonly path: string
  readonly pattern: RegExp
  readonly routes: readonly BuildRoute[]
  readonly allow: string
}
type Found = { readonly template: Template; readonly params: Readonly<Record<string, string>> }

function templatesOf(routes: readonly BuildRoute[]): Template[] {
  return [...Map.groupBy(routes, route => route.path)].map(([path, own]) => {
    const methods = own.map(route => route.method)
    const all = [...methods, ...(methods.includes('GET') ? ['HEAD'] : []), 'OPTIONS']
    const pattern = new RegExp(`^${path.replaceAll('.', '\\.').replace(/:([a-z]+)/g, '(?<$1>[^/]{1,128})')}$`)
    return { path, pattern, routes: own, allow: all.sort().join(', ') }
  })
}

function findTemplate(templates: readonly Template[], path: string): Found | null {
  for (const template of templates) {
    const match = template.pattern.exec(path)
    if (match !== null) return { template, params: { ...match.groups } }
  }
  return null
}

function dispatch(
  found: Found | null,
  context: Omit<BuildHttpContext, 'method' | 'params'>,
): Response | Promise<Response> {
  if (found === null) throw new Fault('not_found', 'There is nothing at this path.')
  const { template, params } = found
  const method = context.request.method === 'HEAD' ? 'GET' : context.request.method
  const route = template.routes.find(route => route.method === method)
  if (route !== undefined) return route.respond({ ...context, method, params })
  const headers = { Allow: template.allow }
  if (method === 'OPTIONS') return new Response(null, { status: 204, headers })
  return problemResponse(new Fault('method_not_allowed', `The methods here are ${template.allow}.`), headers)
}

/** As it was sent: not decoded, so that each path has one spelling. */
function pathOf(url: string): string {
  const start = url.indexOf('/', url.indexOf('//') + 2)
  const query = url.indexOf('?', start)
  return start < 0 ? '/' : url.slice(start, query < 0 ? undefined : query)
}

/** Reads that succeed are many and say little; a failure of ours has been logged as an error with its cause already. */
function accessLevel(method: string, status: number): LogLevel {
  if (status >= 500) return 'warn'
  return status < 400 && method !== 'POST' && method !== 'DELETE' ? 'debug' : 'info'
}
