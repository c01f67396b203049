// The console's responses to browsers that log in, and to sessions. Effects: those of the parts.

import { Fault } from '../../base/fault.ts'
import { UnavailableFault } from '../../http/limited.ts'
import type { Streams } from '../live/streams.ts'
import type { Session } from '../sessions/sessions.ts'
import { tokenOf } from './cookie.ts'
import { guarded, ownGuarded } from './headers.ts'
import { beginAtProvider, logInByProvider, type OidcRoutesDeps, signInDocument } from './oidc.routes.ts'
import { type AskOperator, askOperator, operatorPath } from './operator.routes.ts'
import { admitPasskey, logInByPasskey, makePasskey, type PasskeyRoutesDeps, placeOf } from './passkey.routes.ts'
import { logInByLink, logOut, type SessionRequest, sessionDocument } from './session.routes.ts'
import type { TenantPeer } from './tenant.routes.ts'

export type Peer = TenantPeer & {
  /** Allows the response to be idle until its session ends, which also ends the response. */
  readonly mayStay: () => void
}

/** A request being handled. */
export type Context = SessionRequest & {
  readonly peer: Peer
  readonly path: string
  readonly search: string
  /** Actor for the access log; null if unknown. */
  actor: string | null
}

export type SessionAnswerDeps = PasskeyRoutesDeps &
  OidcRoutesDeps & {
    /** Null while the daemon is starting. */
    readonly operator: () => AskOperator | null
    readonly streams: Pick<Streams, 'open'>
    /** Counts a log-in by its address. Fault rate_limited. */
    readonly admitLogIn: (address: string) => void
  }

type ReadBody = (request: Request) => Promise<unknown>

const LOG_INS: ReadonlySet<string> = new Set([
  'POST /api/session',
  'POST /api/session/passkey',
  'POST /api/session/passkey/options',
  'POST /api/session/oidc',
  'POST /api/session/oidc/begin',
  'GET /api/sign-in',
])

/** Reports whether this is a request of a browser that logs in. */
export function isLogIn({ request, path }: Context): boolean {
  return LOG_INS.has(`${request.method} ${path}`)
}

export async function answerLogIn(deps: SessionAnswerDeps, context: Context, readBody: ReadBody): Promise<Response> {
  const { path, request } = context
  if (path === '/api/sign-in') return Response.json(signInDocument(deps))
  deps.admitLogIn(context.peer.address())
  const body = await readBody(request)
  if (path === '/api/session/passkey/options') return Response.json(await deps.passkeys.logInOptions(placeOf(context)))
  if (path === '/api/session/passkey') return logInByPasskey(deps, body, context)
  if (path === '/api/session/oidc/begin') return beginAtProvider(deps, context)
  if (path === '/api/session/oidc') return logInByProvider(deps, body, { ...context, address: context.peer.address() })
  const token: unknown = Reflect.get(Object(body), 'token')
  if (typeof token === 'string') return logInByLink(deps, token, context)
  throw new Fault('invalid_request', 'token must be the text of a link.', { param: 'token' })
}

/** Marks a request that no person made, for example after a change: it does not count as use. */
const backgroundHeader = 'x-strongroom-background'

/** Returns the session of the request. Fault unauthenticated. */
export function sessionOf(deps: Pick<SessionAnswerDeps, 'sessions'>, context: Context): Session {
  const session = findSession(deps, context)
  if (session === null) {
    throw new Fault('unauthenticated', 'You are not signed in; use a passkey, or a link from: strongroom console open')
  }
  return session
}

/** Returns the session of the request's cookie; null if there is none. */
export function findSession({ sessions }: Pick<SessionAnswerDeps, 'sessions'>, context: Context): Session | null {
  const { request, path } = context
  const token = tokenOf(request.headers.get('cookie'))
  const isUse = request.headers.get(backgroundHeader) === null && path !== '/api/live'
  const session = token === null ? null : sessions.find(token, { isUse })
  if (session !== null) context.actor = session.person.actor
  return session
}

type SessionAsked = { readonly context: Context; readonly session: Session; readonly readBody: ReadBody }

export async function answerSession(
  deps: SessionAnswerDeps,
  { context, session, readBody }: SessionAsked,
): Promise<Response> {
  const { request, path, search } = context
  const rest = operatorPath(path, request.method)
  if (rest !== null) return await answerOperator(deps.operator, { context, session, rest: rest + search })
  const answer = ANSWERS[`${request.method} ${path}`]
  if (answer === undefined) throw new Fault('not_found', 'There is nothing at this path for this method.')
  return ownGuarded(await answer(deps, { context, session, readBody }))
}

/** Forwards a request to the operator's interface. `rest`: path and query there. */
export async function answerOperator(
  operator: SessionAnswerDeps['operator'],
  { context, session, rest }: { readonly context: Context; readonly session: Session; readonly rest: string },
): Promise<Response> {
  const { request, search, peer } = context
  const ask = operator()
  if (ask === null) throw new UnavailableFault('The daemon is starting; try again.', 1_000)
  const isFollowed = request.method === 'GET' && new URLSearchParams(search).get('follow') === 'true'
  // A followed console may be idle for hours.
  if (isFollowed) peer.mayStay()
  else peer.mayPause()
  const response = guarded(await askOperator(ask, { request, rest, session }))
  // Otherwise the connection would also be allowed to stay idle after the response.
  if (isFollowed) response.headers.set('connection', 'close')
  return response
}

type Answer = (deps: SessionAnswerDeps, asked: SessionAsked) => Response | Promise<Response>

const ANSWERS: Readonly<Record<string, Answer>> = {
  'GET /api/session': (deps, { session, context }) => Response.json(sessionDocument(deps, session, context.hostName)),
  'DELETE /api/session': ({ sessions }, { session }) => logOut(sessions, session),
  'GET /api/live': ({ streams }, { session, context }) => {
    context.peer.mayPause()
    return streams.open(session, new URLSearchParams(context.search).get('since'))
  },
  'POST /api/passkeys/options': async (deps, { session, context }) => {
    admitPasskey(deps, session)
    return Response.json(await deps.passkeys.creationOptions(session, placeOf(context)))
  },
  'POST /api/passkeys': async (deps, { session, context, readBody }) =>
    makePasskey(deps, { body: await readBody(context.request), session, asked: context }),
}
