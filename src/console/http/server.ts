// The console's edge: which host and page a request is for, its session, and the part that answers it. Effects: those
// of the parts; the access log.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger, LogLevel } from '../../base/log.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import { Places } from '../../base/work/places.ts'
import type { AdminProblem } from '../../contract/admin/admin.ts'
import { readJson } from '../../http/body.ts'
import { checkHost } from '../../http/head.ts'
import { LimitedFault, retryAfterOf, storageFault, UnavailableFault } from '../../http/limited.ts'
import { failureHeaders, internalErrorMessage, isInternal } from '../../http/problem.ts'
import type { StrangerLines } from '../../http/stranger-lines.ts'
import { fileResponse, indexPath, type ServedFile } from '../page/files.ts'
import type { Session } from '../sessions/sessions.ts'
import { tokenOf } from './cookie.ts'
import { guarded, ownGuarded } from './headers.ts'
import { type AskOperator, askOperator } from './operator.routes.ts'
import { crossSiteFault, hostOf } from './origin.ts'
import { type Asked, logInByLink, logOut, type SessionRoutesDeps, sessionDocument } from './session.routes.ts'

export type ConsoleDeps = SessionRoutesDeps & {
  readonly clock: Clock
  readonly log: Logger
  readonly strangers: Pick<StrangerLines, 'level'>
  /** As `hostsOf` has them. */
  readonly hosts: ReadonlySet<string>
  readonly files: () => Promise<ReadonlyMap<string, ServedFile>>
  /** Null: the daemon is about to start. */
  readonly operator: () => AskOperator | null
  /** Counts a log-in by its address. Fault rate_limited. */
  readonly admitLogIn: (address: string) => void
}

/** A request under way. */
type Context = Asked & {
  readonly address: () => string
  readonly path: string
  readonly search: string
  /** For the access log. */
  actor: string | null
}

export type ConsoleFetch = (request: Request, peer: { readonly address: () => string }) => Promise<Response>

const BODY_LIMITS = { bytesMax: 65_536, timeoutMs: 10_000, depthMax: 16 } as const

/** Requests under way of sessions; one session may have an eighth of them. */
const openRequestsMax = 256
const sessionParts = 8

/** Says so of a request that no person made, such as one that follows a change: it does not count as use. */
const backgroundHeader = 'x-strongroom-background'

/** Never rejects: every request gets a response. */
export function createConsole(deps: ConsoleDeps): ConsoleFetch {
  const deadlines = createDeadlines(deps.clock)
  const places = new Places(openRequestsMax)
  const parts: Parts = { deps, places, readBody: request => readJson(request, BODY_LIMITS, deadlines) }
  return async (request, { address }) => {
    const startedMs = deps.clock.monotonicMs()
    const url = URL.canParse(request.url) ? new URL(request.url) : null
    const host = hostOf(request.headers.get('host'))
    const context: Context = {
      request,
      address,
      hostName: host?.name ?? '',
      path: url?.pathname ?? '',
      search: url?.search ?? '',
      actor: null,
    }
    let response: Response
    try {
      checkHost(request.headers)
      response =
        host === null || url === null || !deps.hosts.has(host.name)
          ? wrongHost(host?.name ?? null)
          : await route(parts, context, host.authority)
    } catch (error) {
      response = ownGuarded(failure(deps.log, error))
    }
    logAccess(deps, context, { status: response.status, ms: Math.round(deps.clock.monotonicMs() - startedMs) })
    return response
  }
}

type Parts = {
  readonly deps: ConsoleDeps
  readonly places: Places
  readonly readBody: (request: Request) => Promise<unknown>
}

/** RFC 9110 15.5.20. In plain text: this host has nothing to show to that name. */
function wrongHost(name: string | null): Response {
  const text =
    name === null
      ? 'The Host header names no host.\n'
      : `The console is not at ${name}. Its operator can add the name to console.names in the configuration.\n`
  return ownGuarded(new Response(text, { status: 421, headers: { 'content-type': 'text/plain; charset=utf-8' } }))
}

async function route(parts: Parts, context: Context, authority: string): Promise<Response> {
  const { deps } = parts
  const { request, path } = context
  const isChange = request.method !== 'GET' && request.method !== 'HEAD'
  if (!path.startsWith('/api/')) {
    if (isChange) throw new Fault('method_not_allowed', 'The methods here are GET, HEAD.')
    return page(await deps.files(), context)
  }
  const fault = crossSiteFault(request.headers, { authority, isChange })
  if (fault !== null) throw fault
  if (isChange && !isJson(request.headers)) {
    throw new Fault('invalid_request', 'The Content-Type header must be application/json.')
  }
  if (path === '/api/session' && request.method === 'POST') return logIn(parts, context)
  const session = sessionOf(parts, context)
  const release = parts.places.take([{ name: session.id, parts: sessionParts }])
  if (typeof release === 'string') throw new LimitedFault('Too many requests of this session are open.', 1_000)
  try {
    return withEnd(await answer(parts, context, session), session.ended, release)
  } catch (error) {
    release()
    throw error
  }
}

/** A page asks for its own paths: each of them is the one document, which shows what its path names. */
function page(files: ReadonlyMap<string, ServedFile>, { request, path }: Context): Response {
  const file = files.get(path) ?? (path.startsWith('/assets/') ? undefined : files.get(indexPath))
  if (file === undefined) throw new Fault('not_found', 'There is nothing at this path.')
  return ownGuarded(fileResponse(file, request.headers))
}

function isJson(headers: Headers): boolean {
  return /^application\/json[ \t]*(;|$)/i.test(headers.get('content-type') ?? '')
}

async function logIn({ deps, readBody }: Parts, context: Context): Promise<Response> {
  deps.admitLogIn(context.address())
  const body = await readBody(context.request)
  const token: unknown = Reflect.get(Object(body), 'token')
  if (typeof token !== 'string')
    throw new Fault('invalid_request', 'token must be the text of a link.', { param: 'token' })
  return ownGuarded(logInByLink(deps, token, context))
}

/** Fault unauthenticated. */
function sessionOf({ deps }: Parts, context: Context): Session {
  const { request } = context
  const token = tokenOf(request.headers.get('cookie'))
  const isUse = request.headers.get(backgroundHeader) === null
  const session = token === null ? null : deps.sessions.find(token, { isUse })
  if (session === null) {
    throw new Fault('unauthenticated', 'Nobody is logged in here; use a passkey, or a link of: strongroom console open')
  }
  context.actor = session.person.actor
  return session
}

async function answer({ deps }: Parts, context: Context, session: Session): Promise<Response> {
  const { request, path, search, hostName } = context
  if (path.startsWith('/api/operator/')) {
    const operator = deps.operator()
    if (operator === null) throw new UnavailableFault('The daemon is about to start; try again.', 1_000)
    return guarded(await askOperator(operator, { request, rest: path.slice('/api/operator'.length) + search, session }))
  }
  if (path === '/api/session') {
    if (request.method === 'DELETE') return ownGuarded(logOut(deps.sessions, session))
    if (request.method === 'GET') return ownGuarded(Response.json(sessionDocument(deps, session, hostName)))
    throw new Fault('method_not_allowed', 'The methods here are GET, POST, DELETE.')
  }
  throw new Fault('not_found', 'There is nothing at this path.')
}

/** The response, whose body ends with the session; `release` is called at its end. */
function withEnd(response: Response, ended: AbortSignal, release: () => void): Response {
  const { body, status, headers } = response
  if (body === null) {
    release()
    return response
  }
  const reader = body.getReader()
  const cut = () => void reader.cancel().catch(() => {})
  ended.addEventListener('abort', cut, { once: true })
  const finish = () => {
    ended.removeEventListener('abort', cut)
    release()
  }
  const stream = new ReadableStream<Uint8Array>({
    pull: async controller => {
      try {
        const next = await reader.read()
        if (!next.done) return controller.enqueue(next.value)
        finish()
        controller.close()
      } catch (error) {
        finish()
        controller.error(error)
      }
    },
    cancel: async () => {
      finish()
      await reader.cancel().catch(() => {})
    },
  })
  return new Response(stream, { status, headers })
}

function failure(log: Logger, thrown: unknown): Response {
  const isOurs = isInternal(thrown) && !(thrown instanceof UnavailableFault)
  if (isOurs) log.error('request failed', { error: thrown })
  const error = storageFault(thrown) ?? thrown
  const fault = error instanceof Fault ? error : new Fault('internal', internalErrorMessage)
  const message = isOurs && fault === thrown ? internalErrorMessage : fault.message
  const param = fault.param === undefined ? {} : { param: fault.param }
  const problem: AdminProblem = { error: { code: fault.code, message, ...param } }
  const seconds = retryAfterOf(fault)
  const retryAfter = seconds === null ? {} : { 'retry-after': String(seconds) }
  const { 'www-authenticate': _never, ...headers } = { 'www-authenticate': '', ...failureHeaders(fault.status) }
  return Response.json(problem, { status: fault.status, headers: { ...headers, ...retryAfter } })
}

function logAccess(
  { log, strangers }: ConsoleDeps,
  { request, path, actor }: Context,
  { status, ms }: { readonly status: number; readonly ms: number },
): void {
  const isRead = status < 400 && (request.method === 'GET' || request.method === 'HEAD')
  const wanted: LogLevel = status >= 500 ? 'warn' : isRead ? 'debug' : 'info'
  const level = actor === null ? strangers.level(wanted) : wanted
  const area = path.startsWith('/api/') ? path.split('/', 3).join('/') : '(page)'
  log[level]('request', { method: request.method, area: area.slice(0, 32), status, ms, actor })
}
