// Passkeys over HTTP: creating one in a session, and logging in with one. Effects: passkeys, sessions.

import { iso, isoOrNull } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { AdminPasskey } from '../../contract/admin/console.ts'
import type { Passkey } from '../../store/ledger/passkey.table.ts'
import type { PasskeyOrigin, Passkeys } from '../passkeys/passkeys.ts'
import { readAssertion, readNewPasskey } from '../passkeys/responses.ts'
import type { Session } from '../sessions/sessions.ts'
import { beginSession, noPasskeyText, type SessionRequest, type SessionRoutesDeps } from './session.routes.ts'

export type PasskeyRoutesDeps = SessionRoutesDeps & {
  readonly passkeys: Passkeys
  /** Throws while an upgrade is on trial. */
  readonly admitChange: () => void
}

export function placeOf({ hostName, origin }: SessionRequest): PasskeyOrigin {
  return { hostName, origin }
}

export async function logInByPasskey(deps: PasskeyRoutesDeps, body: unknown, asked: SessionRequest): Promise<Response> {
  const { person, passkeyId } = await deps.passkeys.logIn(readAssertion(body), placeOf(asked))
  return beginSession(deps, { person, by: 'passkey', passkeyId }, asked)
}

/** Throws if the session cannot make a passkey: Fault forbidden, or while an upgrade is on trial. */
export function admitPasskey({ admitChange }: Pick<PasskeyRoutesDeps, 'admitChange'>, { by }: Session): void {
  if (by === 'oidc') throw new Fault('forbidden', noPasskeyText)
  admitChange()
}

export async function makePasskey(
  deps: PasskeyRoutesDeps,
  { body, session, asked }: { readonly body: unknown; readonly session: Session; readonly asked: SessionRequest },
): Promise<Response> {
  admitPasskey(deps, session)
  const passkey = await deps.passkeys.create(session, readNewPasskey(body), placeOf(asked), ({ id, name, rpId }) =>
    deps.record(session.person, 'passkey.add', { id, name, rp_id: rpId }),
  )
  return Response.json({ ...passkeyDocument(passkey), own: true } satisfies AdminPasskey, { status: 201 })
}

export function passkeyDocument(passkey: Passkey): Omit<AdminPasskey, 'own'> {
  const { id, actor, role, name, rpId, createdAtMs, lastUsedAtMs } = passkey
  return {
    ...{ id, actor, role, name, rp_id: rpId },
    created_at: iso(createdAtMs),
    last_used_at: isoOrNull(lastUsedAtMs),
  }
}
