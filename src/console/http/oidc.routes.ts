// Sign-in at the identity provider over HTTP: what the sign-in page offers, the begin, and the provider's answer.
// Effects: the provider, sessions.
//
// The provider sends the browser to a page of the console, which reads the answer from its address and sends it here as
// its own request. So a page of another site can neither begin nor finish a sign-in.

import { Type } from '@sinclair/typebox'
import { Fault } from '../../base/fault.ts'
import type { OidcBegun, SignInDocument } from '../../contract/admin/console.ts'
import { checked } from '../../contract/check.ts'
import { attemptLifeMs } from '../oidc/attempts.ts'
import type { OidcSignIn } from '../oidc/sign-in.ts'
import { attemptCookie, attemptTokenOf, noAttemptCookie } from './cookie.ts'
import { beginSession, type SessionRequest, type SessionRoutesDeps } from './session.routes.ts'

export type OidcRoutesDeps = SessionRoutesDeps & {
  /** Null if the configuration has no identity provider. */
  readonly oidc: OidcSignIn | null
}

/** A query: codes of some providers have 2,000 characters and more. */
const answerCharsMax = 16_384
const Answer = Type.Object({ answer: Type.String({ minLength: 1, maxLength: answerCharsMax }) })

export function signInDocument({ oidc }: Pick<OidcRoutesDeps, 'oidc'>): SignInDocument {
  return { oidc: oidc === null ? null : { name: oidc.name } }
}

/** Begins in this browser. Returns the address at the provider, with a cookie. */
export async function beginAtProvider(deps: OidcRoutesDeps, { origin }: SessionRequest): Promise<Response> {
  const { url, token } = await required(deps).begin({ origin })
  const headers = { 'set-cookie': attemptCookie(token, attemptLifeMs) }
  return Response.json({ url } satisfies OidcBegun, { status: 201, headers })
}

/** Ends the sign-in and begins a session. `body`: the query with which the browser came back. */
export async function logInByProvider(
  deps: OidcRoutesDeps,
  body: unknown,
  asked: SessionRequest & { readonly address: string },
): Promise<Response> {
  const { answer } = checked(Answer, body, { what: 'the answer of the provider', code: 'invalid_request' })
  const token = attemptTokenOf(asked.request.headers.get('cookie'))
  const { person, issuer, subject, email, isEmailVerified } = await required(deps).finish({ token, answer }, asked)
  // Some providers let people enter any address.
  const proof = {
    ...{ issuer, subject },
    ...(email === null ? {} : { [isEmailVerified ? 'email' : 'unverified_email']: email }),
  }
  const response = beginSession(deps, { person, by: 'oidc', passkeyId: null, proof }, asked)
  response.headers.append('set-cookie', noAttemptCookie)
  return response
}

function required({ oidc }: Pick<OidcRoutesDeps, 'oidc'>): OidcSignIn {
  if (oidc !== null) return oidc
  throw new Fault('not_found', 'This console has no identity provider; use a passkey, or a link.')
}
