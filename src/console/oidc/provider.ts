// The identity provider: discovery, the address for the browser, and the code exchanged for a verified ID token
// (OpenID Connect Core 1.0, RFC 7636, RFC 9207). Effects: requests to it; loads the library on first use.
//
// The library compares issuer, audience, nonce, times and `iss` of the answer, and keeps the provider's keys for five
// minutes; for an unknown key it reads them again, at most once a minute.

import type { AuthorizationServer, Client, ClientAuth, IDToken } from 'oauth4webapi'
import type { Clock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { hourMs } from '../../base/time.ts'
import type { OidcConfig } from '../../config/operator.ts'
import type { Outgoing } from '../../linux/net/outgoing.ts'
import type { Attempt } from './attempts.ts'
import { usableMetadata } from './metadata.ts'
import {
  createProviderFetch,
  type DocumentKind,
  ProviderFailure,
  readOperatorFile,
  requireDocument,
} from './provider-fetch.ts'

const discoveryLifeMs = hourMs
/** How long a failure of discovery is cached. Requests for tokens have a limit in sign-in.ts. */
const failureLifeMs = 10_000
const clockToleranceSeconds = 60

export type ProviderDeps = {
  readonly config: OidcConfig
  /** Sends the requests to the provider. */
  readonly send: Outgoing
  readonly clock: Pick<Clock, 'monotonicMs' | 'nowMs'>
}

type Discovery = { readonly result: Promise<AuthorizationServer>; sinceMs: number; isFailed: boolean }

/** An answer of the provider that came with the browser. */
export type ProviderAnswer = {
  readonly parameters: URLSearchParams
  readonly attempt: Attempt
  readonly redirectUri: string
  /** Called before the request for tokens. A fault of it prevents the request. */
  readonly beforeExchange: () => void
}

export class Provider {
  readonly #deps: ProviderDeps
  readonly #fetch: (url: string, init: RequestInit) => Promise<Response>
  #discovery: Discovery | null = null

  constructor(deps: ProviderDeps) {
    this.#deps = deps
    this.#fetch = createProviderFetch({ caFile: deps.config.ca_file, send: deps.send })
  }

  /** Returns the provider's metadata, cached for an hour. Callers share a request. Throws ProviderFailure. */
  discover(): Promise<AuthorizationServer> {
    const nowMs = this.#deps.clock.monotonicMs()
    const known = this.#discovery
    const lifeMs = known?.isFailed === true ? failureLifeMs : discoveryLifeMs
    if (known !== null && nowMs - known.sinceMs < lifeMs) return known.result
    const result = this.#readMetadata()
    const discovery: Discovery = { result, sinceMs: nowMs, isFailed: false }
    this.#discovery = discovery
    result.catch(() => {
      discovery.isFailed = true
      discovery.sinceMs = this.#deps.clock.monotonicMs()
    })
    return result
  }

  /** Returns the address at the provider to which the browser goes. Throws ProviderFailure. */
  async address({ state, nonce, verifier }: Attempt, redirectUri: string): Promise<string> {
    const { config } = this.#deps
    const server = await this.discover()
    const { calculatePKCECodeChallenge } = await loadLibrary()
    const url = new URL(server.authorization_endpoint ?? '')
    const asked = {
      response_type: 'code',
      response_mode: 'query',
      client_id: config.client_id,
      redirect_uri: redirectUri,
      scope: config.scopes.join(' '),
      ...{ state, nonce },
      code_challenge: await calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
    }
    for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value)
    return url.href
  }

  /**
   * Checks the answer against the attempt, exchanges its code, and returns the claims of the ID token, whose signature
   * is verified. Throws ProviderFailure; errors of the library if the answer does not verify.
   */
  async claimsOf({ parameters, attempt, redirectUri, beforeExchange }: ProviderAnswer): Promise<IDToken> {
    const server = await this.discover()
    const library = await loadLibrary()
    const client: Client = {
      client_id: this.#deps.config.client_id,
      [library.clockTolerance]: clockToleranceSeconds,
      [library.clockSkew]: (this.#deps.clock.nowMs() - Date.now()) / 1000,
    }
    const checked = library.validateAuthResponse(server, client, parameters, attempt.state)
    const optionsFor = (kind: DocumentKind) => ({ [library.customFetch]: this.#fetchDocument(kind) })
    const clientAuth = await this.#clientAuth(server)
    beforeExchange()
    const response = await library.authorizationCodeGrantRequest(
      server,
      client,
      clientAuth,
      checked,
      redirectUri,
      attempt.verifier,
      optionsFor('tokens'),
    )
    const tokens = await library.processAuthorizationCodeResponse(server, client, response, {
      expectedNonce: attempt.nonce,
      requireIdToken: true,
    })
    await library.validateApplicationLevelSignature(server, response, optionsFor('keys'))
    const claims = library.getValidatedIdTokenClaims(tokens)
    if (claims === undefined) throw new Error('the response has no ID token')
    this.#checkIssue(claims)
    return claims
  }

  #fetchDocument(kind: DocumentKind) {
    return async (url: string, init: RequestInit): Promise<Response> =>
      await requireDocument(await this.#fetch(url, init), kind, url)
  }

  /** Checks what the library leaves open: for whom and when the token was issued (OpenID Connect Core 3.1.3.7). */
  #checkIssue({ azp, iat }: IDToken): void {
    const { clock, config } = this.#deps
    if (azp !== undefined && azp !== config.client_id) throw new Error('the ID token is for another client ("azp")')
    if (iat > clock.nowMs() / 1000 + clockToleranceSeconds) throw new Error('the ID token is of the future ("iat")')
  }

  /** Returns how many keys the provider has, read now. Throws ProviderFailure. */
  async keyCount(): Promise<number> {
    const { jwks_uri: url = '' } = await this.discover()
    const response = await this.#fetchDocument('keys')(url, { headers: { accept: 'application/json' } })
    return ((await response.json()) as { readonly keys: readonly unknown[] }).keys.length
  }

  /** Returns the client's secret, read now. Throws ProviderFailure. */
  secret(): string {
    const field = 'console.oidc.client_secret_file'
    const file = this.#deps.config.client_secret_file
    const secret = readOperatorFile(field, file).trim()
    if (!/^[\x20-\x7e]+$/.test(secret)) throw new ProviderFailure(`${field}: ${file} must hold one line of ASCII text`)
    return secret
  }

  async #clientAuth({ token_endpoint_auth_methods_supported: methods }: AuthorizationServer): Promise<ClientAuth> {
    const { ClientSecretBasic, ClientSecretPost } = await loadLibrary()
    const secret = this.secret()
    // OpenID Connect Discovery 3: without the list, it is client_secret_basic.
    const isBasic = methods === undefined || methods.includes('client_secret_basic')
    return isBasic ? ClientSecretBasic(secret) : ClientSecretPost(secret)
  }

  async #readMetadata(): Promise<AuthorizationServer> {
    const { config } = this.#deps
    const library = await loadLibrary()
    try {
      const issuer = new URL(config.issuer)
      const response = await library.discoveryRequest(issuer, { [library.customFetch]: this.#fetch })
      return usableMetadata(await library.processDiscoveryResponse(issuer, response))
    } catch (error) {
      if (error instanceof ProviderFailure) throw error
      const what = otherIssuer(error) ?? messageOf(error)
      throw new ProviderFailure(`the discovery document of ${config.issuer} is not usable: ${what}`, { cause: error })
    }
  }
}

const shownCharsMax = 512

/** Returns what to say of a document that has another issuer than the configuration; null for other errors. */
function otherIssuer(error: unknown): string | null {
  const { code, cause } = Object(error) as { code?: unknown; cause?: unknown }
  if (code !== 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED') return null
  const { issuer } = Object(Reflect.get(Object(cause), 'body')) as { issuer?: unknown }
  return `its issuer is ${JSON.stringify(String(issuer).slice(0, shownCharsMax))}; set console.oidc.issuer to the one that you trust`
}

function loadLibrary() {
  return import('oauth4webapi')
}
