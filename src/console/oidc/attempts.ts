// Sign-ins at the identity provider that have begun. Stateless: beginning one takes no memory, so strangers cannot use
// it up.
//
// The browser's cookie has an authenticated token with an end. State, nonce and code verifier are derived from it, so
// that an answer of the provider fits the browser that began the sign-in alone.

import { createHmac } from 'node:crypto'
import { toBase64Url } from '../../base/bytes.ts'
import { Challenges, type ChallengesDeps } from '../passkeys/challenges.ts'

/** Time for a person to sign in at the provider, also with a second factor. */
export const attemptLifeMs = 600_000

export type Attempt = {
  readonly state: string
  readonly nonce: string
  /** RFC 7636 4.1: 43 characters of base64url. */
  readonly verifier: string
}

export class Attempts {
  readonly #tokens: Challenges
  /** New at each start of the daemon. */
  readonly #key: Uint8Array

  constructor(deps: ChallengesDeps) {
    this.#tokens = new Challenges(deps, attemptLifeMs)
    this.#key = deps.random(32)
  }

  /** Begins a sign-in. `origin`: where the browser sees the console. `token`: the secret for its cookie. */
  begin(origin: string): { readonly token: string; readonly attempt: Attempt } {
    const token = toBase64Url(this.#tokens.make(origin))
    return { token, attempt: this.#attemptOf(token) }
  }

  /** Returns the sign-in of a cookie; null if it was not begun at this origin, has expired, or was completed. */
  find(token: string, origin: string): Attempt | null {
    return this.#tokens.isGood(token, origin) ? this.#attemptOf(token) : null
  }

  /** Marks a sign-in as completed. Returns false if it already was. */
  complete(token: string): boolean {
    return this.#tokens.use(token)
  }

  #attemptOf(token: string): Attempt {
    const derive = (what: string) =>
      toBase64Url(new Uint8Array(createHmac('sha256', this.#key).update(`${what} ${token}`).digest()))
    return { state: derive('state'), nonce: derive('nonce'), verifier: derive('verifier') }
  }
}
