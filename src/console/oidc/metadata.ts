// Requirements on the provider's discovery document (OpenID Connect Discovery 1.0, 3). Pure.

import type { AuthorizationServer } from 'oauth4webapi'

/** Signatures with a public key. Never `none`, nor HMAC with a secret. */
const ALGORITHMS: readonly string[] = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'],
]
const shownCharsMax = 100

/** Lists of which one entry must fit, if the document has them. */
const NEEDED: readonly (readonly [name: keyof AuthorizationServer, fitting: readonly string[]])[] = [
  ['response_types_supported', ['code']],
  ['code_challenge_methods_supported', ['S256']],
  ['token_endpoint_auth_methods_supported', ['client_secret_basic', 'client_secret_post']],
]

/** Returns the document with the algorithms of ID tokens that are taken here. Throws an Error if it does not fit. */
export function usableMetadata(server: AuthorizationServer): AuthorizationServer {
  for (const name of ['authorization_endpoint', 'token_endpoint', 'jwks_uri'] as const) {
    const text: unknown = server[name]
    const url = typeof text === 'string' ? URL.parse(text) : null
    if (url?.protocol !== 'https:') throw new Error(`its ${name} is no https URL`)
  }
  for (const [name, fitting] of NEEDED) {
    const offered = listIn(server, name)
    if (offered !== null && !fitting.some(entry => offered.includes(entry))) {
      throw new Error(`its ${name} has ${shown(offered)}, and this console needs ${fitting.join(' or ')}`)
    }
  }
  const offered = listIn(server, 'id_token_signing_alg_values_supported') ?? ['RS256']
  const algorithms = offered.filter(name => ALGORITHMS.includes(name))
  if (algorithms.length === 0) throw new Error(`it signs ID tokens with ${shown(offered)} alone`)
  return { ...server, id_token_signing_alg_values_supported: algorithms }
}

function listIn(server: AuthorizationServer, name: keyof AuthorizationServer): readonly string[] | null {
  const value: unknown = server[name]
  if (value === undefined) return null
  if (Array.isArray(value) && value.every(entry => typeof entry === 'string')) return value
  throw new Error(`its ${name} is no list of texts`)
}

function shown(offered: readonly string[]): string {
  return JSON.stringify(offered.join(', ').slice(0, shownCharsMax))
}
