// A scripted identity provider (OpenID Connect) over HTTPS on 127.0.0.1: discovery, keys, and a token endpoint that
// checks client, code, redirect URI and PKCE as a strict provider does. No real provider is asked, and no person signs
// in: `signIn` gives what the browser would bring back. Effects: a listening socket, a temporary folder.

import { createHash, createHmac } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { serverAuthority } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { OidcConfig } from '../../../src/config/operator.ts'

type Claims = Readonly<Record<string, unknown>>
type Algorithm = 'RS256' | 'ES256'
type Key = { readonly kid: string; readonly alg: Algorithm; readonly pair: CryptoKeyPair }
type Grant = { readonly challenge: string; readonly redirectUri: string; readonly idToken: string }

export const clientId = 'strongroom-console'
export const clientSecret = 'a secret: with "signs" & spaces'

export type SignInOptions = {
  /** Claims that replace those of a valid token; undefined leaves one out. */
  readonly claims?: Claims
  /** Header of the ID token. */
  readonly header?: Claims
  /** Changes the finished token. */
  readonly token?: (token: string) => string | Promise<string>
}

export type ProviderRig = AsyncDisposable & Awaited<ReturnType<typeof startProvider>>

export async function startProvider(change: Partial<OidcConfig> = {}) {
  const authority = await serverAuthority()
  const { cert, key } = await authority.issue(['127.0.0.1'], 1)
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-provider-'))
  const caFile = join(directory, 'ca.pem')
  const secretFile = join(directory, 'secret')
  writeFileSync(caFile, authority.caPem)
  writeFileSync(secretFile, `${clientSecret}\n`)
  const grants = new Map<string, Grant>()
  const requests: string[] = []
  const self = {
    keys: [await newKey('k1', 'RS256')] as Key[],
    /** Answers instead of a path's own answer. */
    instead: new Map<string, (request: Request) => Response | Promise<Response>>(),
    /** Replaces members of the discovery document. */
    metadata: {} as Claims,
    /** Claims of whoever signs in at the provider's page. */
    claims: {} as Claims,
  }
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: { cert, key },
    development: false,
    fetch: async (request): Promise<Response> => {
      const { pathname } = new URL(request.url)
      requests.push(pathname)
      const scripted = self.instead.get(pathname)
      if (scripted !== undefined) return await scripted(request)
      if (pathname === '/realm/.well-known/openid-configuration') return Response.json(metadata())
      if (pathname === '/realm/keys') return Response.json({ keys: await Promise.all(self.keys.map(publicKey)) })
      if (pathname === '/realm/authorize') {
        const to = new URL(request.url).searchParams.get('redirect_uri')
        return Response.redirect(`${to}${await signIn(request.url, { claims: self.claims })}`, 302)
      }
      if (pathname === '/realm/token' && request.method === 'POST') return await exchange(request)
      return new Response(null, { status: 404 })
    },
  })
  const issuer = `https://127.0.0.1:${server.port}/realm`
  const metadata = (): Claims => ({
    issuer,
    authorization_endpoint: `${issuer}/authorize?tenant=a`,
    token_endpoint: `${issuer}/token`,
    jwks_uri: `${issuer}/keys`,
    response_types_supported: ['code'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['none', 'HS256', 'RS256', 'ES256'],
    authorization_response_iss_parameter_supported: true,
    ...self.metadata,
  })

  async function exchange(request: Request): Promise<Response> {
    const form = new URLSearchParams(await request.text())
    const code = form.get('code') ?? ''
    const grant = grants.get(code)
    // RFC 6749 4.1.2: a code is for one use, whatever becomes of it.
    grants.delete(code)
    const [, basic = ''] = /^Basic (.+)$/.exec(request.headers.get('authorization') ?? '') ?? []
    const [id = '', secret = ''] = atob(basic)
      .split(':')
      .map(part => decodeURIComponent(part.replaceAll('+', ' ')))
    if (id !== clientId || secret !== clientSecret) return Response.json({ error: 'invalid_client' }, { status: 400 })
    const challenge = createHash('sha256')
      .update(form.get('code_verifier') ?? '')
      .digest('base64url')
    if (grant?.challenge !== challenge || grant.redirectUri !== form.get('redirect_uri')) {
      return Response.json({ error: 'invalid_grant' }, { status: 400 })
    }
    return Response.json({ access_token: 'opaque', token_type: 'Bearer', id_token: grant.idToken })
  }

  /** Signs a person in as the provider's page would. Returns the query with which the browser comes back. */
  async function signIn(
    url: string,
    { claims = {}, header = {}, token = text => text }: SignInOptions = {},
  ): Promise<string> {
    const asked = new URL(url).searchParams
    const nowSeconds = Math.floor(Date.now() / 1000)
    const key = self.keys[0]
    if (key === undefined) throw new Error('the provider has no key')
    const idToken = await signedToken(key, {
      header,
      claims: {
        ...{ iss: issuer, aud: clientId, sub: 'f81d4fae', nonce: asked.get('nonce') },
        ...{ iat: nowSeconds, exp: nowSeconds + 300 },
        ...{ email: 'ada@example.org', email_verified: true, groups: ['staff', 'room-operators'] },
        ...claims,
      },
    })
    const code = crypto.randomUUID()
    const challenge = asked.get('code_challenge') ?? ''
    grants.set(code, { challenge, redirectUri: asked.get('redirect_uri') ?? '', idToken: await token(idToken) })
    return `?${new URLSearchParams({ code, state: asked.get('state') ?? '', iss: issuer })}`
  }

  const config: OidcConfig = {
    ...defaultConfig().console.oidc,
    ...{ issuer, name: 'Example ID', client_id: clientId, client_secret_file: secretFile, ca_file: caFile },
    groups: [
      { group: 'room-operators', role: 'operator' },
      { group: 'room-admins', role: 'admin' },
      { group: 'room-auditors', role: 'auditor' },
    ],
    ...change,
  }
  return {
    ...{ issuer, config, requests, signIn, self, secretFile },
    /** Ends the listener: from now on connections are refused. */
    stop: () => server.stop(true),
    [Symbol.asyncDispose]: async () => {
      await server.stop(true)
      rmSync(directory, { recursive: true, force: true })
    },
  }
}

export async function newKey(kid: string, alg: Algorithm): Promise<Key> {
  const algorithm =
    alg === 'RS256'
      ? { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256', modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]) }
      : { name: 'ECDSA', namedCurve: 'P-256' }
  const pair = await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
  return { kid, alg, pair: pair as CryptoKeyPair }
}

/** A token whose HMAC has the RSA public key as its secret, the classic confusion of algorithms (RFC 8725 2.1). */
export async function confusedToken({ pair }: Key, token: string): Promise<string> {
  const [, payload = ''] = token.split('.')
  const spki = Buffer.from(await crypto.subtle.exportKey('spki', pair.publicKey)).toString('base64')
  const head = encoded({ alg: 'HS256', kid: 'k1' })
  const mac = createHmac('sha256', `-----BEGIN PUBLIC KEY-----\n${spki}\n-----END PUBLIC KEY-----\n`)
  return `${head}.${payload}.${mac.update(`${head}.${payload}`).digest('base64url')}`
}

export function unsignedToken(token: string): string {
  return `${encoded({ alg: 'none' })}.${token.split('.')[1]}.`
}

async function publicKey({ kid, alg, pair }: Key): Promise<Claims> {
  const { kty, n, e, crv, x, y } = await crypto.subtle.exportKey('jwk', pair.publicKey)
  return { kid, alg, use: 'sig', kty, ...(kty === 'RSA' ? { n, e } : { crv, x, y }) }
}

async function signedToken(
  { kid, alg, pair }: Key,
  { header, claims }: { readonly header: Claims; readonly claims: Claims },
): Promise<string> {
  const text = `${encoded({ alg, kid, typ: 'JWT', ...header })}.${encoded(claims)}`
  const algorithm = alg === 'RS256' ? 'RSASSA-PKCS1-v1_5' : { name: 'ECDSA', hash: 'SHA-256' }
  const signature = await crypto.subtle.sign(algorithm, pair.privateKey, Buffer.from(text))
  return `${text}.${Buffer.from(signature).toString('base64url')}`
}

function encoded(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}
