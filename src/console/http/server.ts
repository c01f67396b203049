// The console's edge: checks host and page of a request, and dispatches it. Effects: those of the parts; the access
// log.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger, LogLevel } from '../../base/log.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import type { AnonymousLogLimit } from '../../http/anonymous-log-limit.ts'
import { readJson } from '../../http/edge.ts'
import { checkHost } from '../../http/head.ts'
import { LimitedFault } from '../../http/limited.ts'
import { fileResponse, indexPath, type ServedFile } from '../page/files.ts'
import { endedBy } from './body-end.ts'
import { failureResponse } from './failure.ts'
import { guarded, ownGuarded, pageGuarded } from './headers.ts'
import { crossSiteFault, hostOf } from './origin.ts'
import { createRelay, RELAY_BOUNDS, type Relay } from './relay.ts'
import {
  answerLogIn,
  answerSession,
  type Context,
  findSession,
  isLogIn,
  type Peer,
  type SessionAnswerDeps,
  sessionOf,
} from './session-answers.ts'
import { isTenantPath, type TenantServices } from './tenant.routes.ts'

export type ConsoleDeps = SessionAnswerDeps & {
  readonly clock: Clock
  readonly log: Logger
  readonly strangers: Pick<AnonymousLogLimit, 'level'>
  /** Result of `hostsOf`. */
  readonly hosts: ReadonlySet<string>
  readonly files: () => Promise<ReadonlyMap<string, ServedFile>>
  readonly tenant: TenantServices
}

export type ConsoleFetch = (request: Request, peer: Peer) => Promise<Response>

const BODY_LIMITS = { bytesMax: 65_536, timeoutMs: 10_000, depthMax: 16 } as const

/** Concurrent requests of sessions. Share: an eighth for one session, none for strangers. */
const openRequestsMax = 256
const sessionParts = 8

type Parts = {
  readonly deps: ConsoleDeps
  readonly places: FairSlots
  readonly relay: Relay
  readonly readBody: (request: Request) => Promise<unknown>
}

/** Creates the handler of requests. Never rejects: every request gets a response. */
export function createConsole(deps: ConsoleDeps): ConsoleFetch {
  const deadlines = createDeadlines(deps.clock)
  const readBody: Parts['readBody'] = request => readJson(request, BODY_LIMITS, deadlines)
  const relay = createRelay({ clock: deps.clock, services: deps.tenant, bounds: RELAY_BOUNDS })
  const parts = { deps, places: new FairSlots(openRequestsMax), relay, readBody }
  return async (request, peer) => {
    const startedMs = deps.clock.monotonicMs()
    const context = contextOf(request, peer)
    let response: Response
    try {
      checkHost(request.headers)
      response = deps.hosts.has(context.hostName) ? await route(parts, context) : wrongHost(context)
    } catch (error) {
      response = ownGuarded(failureResponse(deps.log, error))
    }
    logAccess(deps, context, { status: response.status, ms: Math.round(deps.clock.monotonicMs() - startedMs) })
    return response
  }
}

/** Returns the context, with an empty host if the header names none. */
function contextOf(request: Request, peer: Peer): Context {
  const url = URL.canParse(request.url) ? new URL(request.url) : null
  const host = url === null ? null : hostOf(request.headers.get('host'))
  return {
    ...{ request, peer },
    hostName: host?.name ?? '',
    origin: `https://${host?.authority ?? ''}`,
    path: url?.pathname ?? '',
    search: url?.search ?? '',
    actor: null,
  }
}

/** Returns a misdirected request (RFC 9110 15.5.20) in plain text, because this host has nothing for that name. */
function wrongHost({ hostName }: Context): Response {
  const text =
    hostName === ''
      ? 'The Host header names no host.\n'
      : `The console is not at ${hostName}. Its operator can add the name to console.names in the configuration.\n`
  return pageGuarded(new Response(text, { status: 421, headers: { 'content-type': 'text/plain; charset=utf-8' } }))
}

async function route(parts: Parts, context: Context): Promise<Response> {
  const { deps, readBody } = parts
  const { request, path, search, origin, peer } = context
  const isChange = request.method !== 'GET' && request.method !== 'HEAD'
  if (!path.startsWith('/api/')) {
    if (isChange) throw new Fault('method_not_allowed', 'The methods here are GET, HEAD.')
    return page(await deps.files(), context)
  }
  const fault = crossSiteFault(request.headers, { origin, isChange })
  if (fault !== null) throw fault
  if (isTenantPath(path)) {
    const session = () => findSession(deps, context)
    return guarded(await parts.relay({ request, path, search, peer, session }))
  }
  if (isChange && !isJson(request.headers)) {
    throw new Fault('invalid_request', 'The Content-Type header must be application/json.')
  }
  if (isLogIn(context)) return ownGuarded(await answerLogIn(deps, context, readBody))
  const session = sessionOf(deps, context)
  const release = parts.places.take([{ name: session.id, parts: sessionParts }])
  if (typeof release === 'string') throw new LimitedFault('Too many requests of this session are open.', 1_000)
  try {
    return endedBy(await answerSession(deps, { context, session, readBody }), session.ended, release)
  } catch (error) {
    release()
    throw error
  }
}

/** Returns a file. All paths of the page get the same document, which shows the content for its path. */
function page(files: ReadonlyMap<string, ServedFile>, { request, path }: Context): Response {
  const file = files.get(path) ?? (path.startsWith('/assets/') ? undefined : files.get(indexPath))
  if (file === undefined) throw new Fault('not_found', 'There is nothing at this path.')
  return pageGuarded(fileResponse(file, request.headers))
}

function isJson(headers: Headers): boolean {
  return /^application\/json[ \t]*(;|$)/i.test(headers.get('content-type') ?? '')
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
