// The console's own interface: the current session, log-in with a link, log-out. Effects: sessions.

import { iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { version } from '../../base/version.ts'
import type { SessionDocument } from '../../contract/admin/console.ts'
import { passkeyPlace } from '../passkeys/passkeys.ts'
import type { Person } from '../person.ts'
import type { Links } from '../sessions/links.ts'
import type { LogIn, Session, Sessions } from '../sessions/sessions.ts'
import { noSessionCookie, sessionCookie, tokenOf } from './cookie.ts'

export type SessionRoutesDeps = {
  readonly sessions: Sessions
  readonly links: Links
  readonly hostId: string
  readonly services: SessionDocument['services']
  readonly isInFleet: boolean
  /** Cursor of the stream of changes; null if the current state is unreadable. */
  readonly cursor: () => string | null
  readonly record: (person: Person, operation: string, asked: Readonly<Record<string, unknown>>) => void
}

/**
 * Logs in with a link. `token`: the part of the link after `#token=`. Fault forbidden if it is invalid, used or
 * expired.
 */
export function logInByLink(deps: SessionRoutesDeps, token: string, asked: SessionRequest): Response {
  const person = deps.links.take(token)
  if (person === null) {
    throw new Fault(
      'forbidden',
      'This link was used or has expired. A link works once, within one minute. Create another: strongroom console open',
      { param: 'token' },
    )
  }
  return beginSession(deps, { person, by: 'link', passkeyId: null }, asked)
}

export type SessionRequest = {
  readonly request: Request
  /** Name of the console in the browser's request. */
  readonly hostName: string
  /** The console's origin with that name and port. */
  readonly origin: string
}

/**
 * Begins a session, and ends the browser's previous one: a session never changes its person. `proof`: what the record
 * has besides.
 */
export function beginSession(
  deps: SessionRoutesDeps,
  { proof = {}, ...logIn }: LogIn & { readonly proof?: Readonly<Record<string, string>> },
  { request, hostName }: SessionRequest,
): Response {
  const { sessions } = deps
  deps.record(logIn.person, 'console.login', { by: logIn.by, name: hostName, ...proof })
  const former = tokenOf(request.headers.get('cookie'))
  const known = former === null ? null : sessions.find(former, { isUse: false })
  if (known !== null) sessions.end(({ id }) => id === known.id)
  const { token, session } = sessions.begin(logIn)
  const headers = { 'set-cookie': sessionCookie(token, session.endsAtMs - session.beganAtMs) }
  return Response.json(sessionDocument(deps, session, hostName), { status: 201, headers })
}

export const noPasskeyText =
  'People who sign in at the identity provider get no passkeys, because a passkey would keep working after they leave their groups.'

export function logOut(sessions: Sessions, session: Session): Response {
  sessions.end(({ id }) => id === session.id)
  return new Response(null, { status: 204, headers: { 'set-cookie': noSessionCookie } })
}

export function sessionDocument(deps: SessionRoutesDeps, session: Session, hostName: string): SessionDocument {
  const { person, by, beganAtMs, endsAtMs } = session
  return {
    actor: person.actor,
    role: person.role,
    by,
    began_at: iso(beganAtMs),
    ends_at: iso(endsAtMs),
    idle_s: Math.floor(deps.sessions.idleMs / 1000),
    host_id: deps.hostId,
    version,
    services: deps.services,
    fleet: deps.isInFleet,
    passkeys: by === 'oidc' ? { rp_id: null, why: noPasskeyText } : passkeyPlace(hostName),
    cursor: deps.cursor(),
  }
}
