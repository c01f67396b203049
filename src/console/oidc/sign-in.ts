// Signs a person in at the identity provider: begins in the browser, ends with the provider's answer that the browser
// brings back. Effects: those of the provider; the log.

import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import type { OidcConfig } from '../../config/operator.ts'
import type { AnonymousLogLimit } from '../../http/anonymous-log-limit.ts'
import { limitedPrefix } from '../../http/client-network.ts'
import { LimitedFault, UnavailableFault } from '../../http/limited.ts'
import { createWindow, type TakenAt } from '../../http/window.ts'
import type { ChallengesDeps } from '../passkeys/challenges.ts'
import { Attempts } from './attempts.ts'
import { type OidcPerson, personOfClaims } from './claims.ts'
import { Provider, type ProviderAnswer, type ProviderDeps } from './provider.ts'
import { ProviderFailure } from './provider-fetch.ts'

/**
 * Answers that are being checked, each with up to two requests to the provider. Share: a quarter for one IPv4 address
 * or IPv6 /64.
 */
const openAnswersMax = 16
const addressParts = 4
const retryMs = 10_000
/**
 * Exchanges of codes in a minute, of the whole console, that fail. Otherwise strangers could make this host send any
 * number of requests to the provider, which may then lock the client.
 */
const failedExchangesPerMinute = 120

export type OidcDeps = ProviderDeps &
  ChallengesDeps & {
    readonly log: Logger
    /** Limits the lines of the log that strangers can cause. */
    readonly strangers: Pick<AnonymousLogLimit, 'level'>
  }

/** The browser's origin and address. */
export type OidcPlace = { readonly origin: string; readonly address: string }

/** Path of the page to which the provider sends the browser back. */
export const answerPath = '/oidc'

export class OidcSignIn {
  readonly #deps: OidcDeps
  readonly #provider: Provider
  readonly #attempts: Attempts
  readonly #slots = new FairSlots(openAnswersMax)
  readonly #failedExchanges = createWindow()

  constructor(deps: OidcDeps) {
    this.#deps = deps
    this.#provider = new Provider(deps)
    this.#attempts = new Attempts(deps)
  }

  get name(): string {
    return providerName(this.#deps.config)
  }

  /** Begins a sign-in. Returns the address at the provider, and the secret for the browser's cookie. */
  async begin({ origin }: Pick<OidcPlace, 'origin'>): Promise<{ readonly url: string; readonly token: string }> {
    const { token, attempt } = this.#attempts.begin(origin)
    try {
      return { url: await this.#provider.address(attempt, origin + answerPath), token }
    } catch (error) {
      throw this.#faultOf(error)
    }
  }

  /**
   * Returns the person for whom the provider vouches. `token`: of the browser's cookie. `answer`: the query with which
   * the browser came back. Faults: forbidden, rate_limited; unavailable if the provider does not answer.
   */
  async finish(
    { token, answer }: { readonly token: string | null; readonly answer: string },
    { origin, address }: OidcPlace,
  ): Promise<OidcPerson> {
    const attempt = token === null ? null : this.#attempts.find(token, origin)
    if (token === null || attempt === null) throw new Fault('forbidden', notBegun)
    const release = this.#slots.take([{ name: limitedPrefix(address), parts: addressParts }])
    if (typeof release === 'string') throw new LimitedFault('Too many sign-ins are being checked; try again.', 1_000)
    let takenAt: TakenAt | null = null
    const beforeExchange = () => {
      takenAt = this.#takeExchange()
    }
    try {
      const parameters = new URLSearchParams(answer)
      const found = await this.#personIn({ parameters, attempt, redirectUri: origin + answerPath, beforeExchange })
      // Another request may have completed it during the exchange.
      if (!this.#attempts.complete(token)) throw new Fault('forbidden', notBegun)
      if (takenAt !== null) this.#failedExchanges.giveBack(this.#deps.clock.monotonicMs(), takenAt, 1)
      return found
    } catch (error) {
      throw this.#faultOf(error)
    } finally {
      release()
    }
  }

  /** Counts an exchange until it signs a person in. Fault rate_limited. */
  #takeExchange(): TakenAt {
    const nowMs = this.#deps.clock.monotonicMs()
    const waitMs = this.#failedExchanges.waitMs(nowMs, 1, failedExchangesPerMinute)
    if (waitMs === 0) return this.#failedExchanges.take(nowMs, 1)
    const message = `Too many sign-ins at ${this.name} have failed; try again in a minute. Passkeys and links work now.`
    throw new LimitedFault(message, waitMs)
  }

  async #personIn(answer: ProviderAnswer): Promise<OidcPerson> {
    const { config, log } = this.#deps
    const claims = await this.#provider.claimsOf(answer)
    try {
      return personOfClaims(claims, config, claims.iss)
    } catch (error) {
      // Always: the provider has vouched for this person, and failed exchanges have a limit.
      log.info('a person of the identity provider has no access to the console', {
        issuer: claims.iss,
        subject: claims.sub.slice(0, 255),
        error: messageOf(error),
      })
      throw error
    }
  }

  /** Returns the fault for the browser. The operator's log has the reason. */
  #faultOf(error: unknown): Fault {
    if (error instanceof Fault) return error
    const { log, strangers } = this.#deps
    const level = strangers.level('warn')
    if (error instanceof ProviderFailure) {
      log[level]('sign-in at the identity provider failed', { error: messageOf(error) })
      const message = `${this.name} cannot be used for sign-in now (the log of this host has the reason). Passkeys and links work without it.`
      return new UnavailableFault(message, retryMs, { cause: error })
    }
    const code = codeOf(error)
    log[level]('an answer of the identity provider was refused', { error: messageOf(error), code, ...detailsOf(error) })
    const detail = code === null ? '' : ` with "${code}"`
    return new Fault('forbidden', `${this.name} did not sign you in${detail}. Start again on the sign-in page.`, {
      cause: error,
    })
  }
}

const notBegun =
  'This sign-in did not begin in this browser, was used, or is older than 10 minutes. Start again on the sign-in page.'

/** Returns the name of the provider for people. */
export function providerName({ name, issuer }: Pick<OidcConfig, 'name' | 'issuer'>): string {
  return name === '' ? new URL(issuer).hostname : name
}

/** Limits the text of the provider or the browser in the operator's log. */
const descriptionCharsMax = 300

/** Returns status and description of the provider's refusal (RFC 6749 5.2) for the operator's log. */
function detailsOf(error: unknown): { readonly status?: number; readonly description?: string } {
  const status: unknown = Reflect.get(Object(error), 'status')
  const description: unknown = Reflect.get(Object(error), 'error_description')
  return {
    ...(typeof status === 'number' ? { status } : {}),
    ...(typeof description === 'string' ? { description: description.slice(0, descriptionCharsMax) } : {}),
  }
}

/** Returns the error code of OAuth in the provider's answer (RFC 6749 4.1.2.1, 5.2); null if it has none. */
function codeOf(error: unknown): string | null {
  // A provider may refuse the client by a challenge without such a code (RFC 6749 5.2).
  if (Reflect.get(Object(error), 'code') === 'OAUTH_WWW_AUTHENTICATE_CHALLENGE') return 'invalid_client'
  const code: unknown = Reflect.get(Object(error), 'error')
  return typeof code === 'string' && /^[a-z_]{1,64}$/.test(code) ? code : null
}
