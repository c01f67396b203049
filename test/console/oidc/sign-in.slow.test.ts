// Goal: the console signs in whom the identity provider vouches for, with the role of their groups, and nobody else:
// whatever a browser, a page of another site or a wrong provider sends. The provider is a scripted one on this machine.

import { expect, setDefaultTimeout, setSystemTime, test } from 'bun:test'
import { rmSync, writeFileSync } from 'node:fs'
import { systemClock } from '../../../src/base/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import { listAudit } from '../../../src/store/ledger/audit.query.ts'
import { insertPasskey } from '../../../src/store/ledger/passkey.query.ts'
import { type ConsoleRig, logIn, pageHeaders, startConsole } from '../../rigs/console/console.ts'
import {
  clientSecret,
  confusedToken,
  newKey,
  type ProviderRig,
  type SignInOptions,
  startProvider,
  unsignedToken,
} from '../../rigs/console/provider.ts'

setDefaultTimeout(90_000)

type Begun = { readonly url: string; readonly cookie: string }
type Ended = { readonly status: number; readonly message: string; readonly cookie: string; readonly role: unknown }

async function begin(rig: ConsoleRig): Promise<Begun> {
  const headers = pageHeaders(rig.origin)
  const response = await rig.send('/api/session/oidc/begin', { method: 'POST', headers, body: '{}' })
  const { url, error } = (await response.json()) as { url?: string; error?: { message: string } }
  if (url === undefined) throw new Error(error?.message)
  return { url, cookie: response.headers.getSetCookie()[0]?.split(';')[0] ?? '' }
}

async function finish(rig: ConsoleRig, answer: string, cookie: string): Promise<Ended> {
  const headers = pageHeaders(rig.origin, cookie)
  const body = JSON.stringify({ answer })
  const response = await rig.send('/api/session/oidc', { method: 'POST', headers, body })
  const document = (await response.json()) as { role?: string; error?: { message: string } }
  const session = response.headers.getSetCookie().find(text => text.startsWith('__Host-strongroom='))
  return {
    status: response.status,
    message: document.error?.message ?? '',
    cookie: session?.split(';')[0] ?? '',
    role: document.role ?? null,
  }
}

async function signIn(rig: ConsoleRig, provider: ProviderRig, options: SignInOptions = {}): Promise<Ended> {
  const { url, cookie } = await begin(rig)
  return await finish(rig, await provider.signIn(url, options), cookie)
}

/** `advance`: moves the console's monotonic clock. `reasons`: why answers were refused, from its log. */
async function start(change: Parameters<typeof startProvider>[0] = {}) {
  const provider = await startProvider(change)
  let aheadMs = 0
  const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + aheadMs }
  const reasons: string[] = []
  const lines: Readonly<Record<string, unknown>>[] = []
  const sink = (line: string) => {
    const { error, ...rest } = JSON.parse(line) as { error?: string }
    lines.push(rest)
    if (error !== undefined) reasons.push(error)
  }
  const log = createLogger({ level: 'warn', sink, nowMs: Date.now })
  const rig = await startConsole({ clock, log, settings: { oidc: provider.config } })
  return {
    ...{ provider, rig, reasons, lines },
    advance: (ms: number) => {
      aheadMs += ms
    },
    [Symbol.asyncDispose]: async () => {
      await rig[Symbol.asyncDispose]()
      await provider[Symbol.asyncDispose]()
    },
  }
}

test('goal: the request has PKCE, state, nonce and the exact redirect URI; the cookie is out of reach of scripts', async () => {
  await using both = await start({ scopes: ['openid', 'groups'] })
  const { rig, provider } = both
  const headers = pageHeaders(rig.origin)
  const response = await rig.send('/api/session/oidc/begin', { method: 'POST', headers, body: '{}' })
  expect(response.headers.get('set-cookie')).toMatch(
    /^__Host-strongroom-oidc=[\w-]{75}; Path=\/; Max-Age=600; Secure; HttpOnly; SameSite=Strict$/,
  )
  const { origin, pathname, searchParams } = new URL(((await response.json()) as { url: string }).url)
  expect(origin + pathname).toBe(`${provider.issuer}/authorize`)
  expect(Object.fromEntries(searchParams)).toEqual({
    ...{ tenant: 'a', response_type: 'code', response_mode: 'query', client_id: 'strongroom-console' },
    ...{ redirect_uri: `${rig.origin}/oidc`, scope: 'openid groups', code_challenge_method: 'S256' },
    state: expect.stringMatching(/^[\w-]{43}$/),
    nonce: expect.stringMatching(/^[\w-]{43}$/),
    code_challenge: expect.stringMatching(/^[\w-]{43}$/),
  })
  const other = new URL((await begin(rig)).url).searchParams
  for (const name of ['state', 'nonce', 'code_challenge']) expect(other.get(name)).not.toBe(searchParams.get(name))
})

test('goal: the session has the highest role of the groups; the record names issuer, subject and address', async () => {
  await using both = await start()
  const { rig, provider } = both
  const ended = await signIn(rig, provider, { claims: { groups: ['room-auditors', 'room-operators'] } })
  expect([ended.status, ended.role]).toEqual([201, 'operator'])
  const headers = pageHeaders(rig.origin, ended.cookie)
  expect(await (await rig.send('/api/session', { headers })).json()).toMatchObject({
    ...{ actor: 'oidc:f81d4fae', role: 'operator', by: 'oidc', passkeys: { rp_id: null } },
  })
  const refused = await rig.send('/api/operator/organizations', { method: 'POST', headers, body: '{"slug":"new"}' })
  expect(refused.status).toBe(403)
  const rows = listAudit(rig.store.ledger.db, { after: null, sinceMs: null, actor: 'oidc:f81d4fae', limit: 10 })
  expect(rows.map(({ operation, role, uid, result }) => [operation, role, uid, result])).toEqual([
    ['console.login', 'operator', -1, 'ok'],
    ['org.create', 'operator', -1, 'forbidden'],
  ])
  expect(rows[0]?.arguments).toEqual({
    ...{ by: 'oidc', name: 'localhost', issuer: provider.issuer, subject: 'f81d4fae', email: 'ada@example.org' },
  })
})

test('goal: a removed group ends access at the next sign-in, and one that is text alone counts', async () => {
  await using both = await start()
  const { rig, provider } = both
  expect((await signIn(rig, provider, { claims: { groups: 'room-admins' } })).role).toBe('admin')
  expect((await signIn(rig, provider, { claims: { groups: ['room-auditors'] } })).role).toBe('auditor')
  await signIn(rig, provider, { claims: { sub: 'other', email_verified: undefined } })
  const rows = listAudit(rig.store.ledger.db, { after: null, sinceMs: null, actor: 'oidc:other', limit: 10 })
  expect(rows.map(row => row.arguments)).toMatchObject([{ subject: 'other', unverified_email: 'ada@example.org' }])
  const none = await signIn(rig, provider, { claims: { groups: ['staff', 'ROOM-ADMINS', 'room-admins '] } })
  expect([none.status, none.message, none.cookie]).toEqual([
    403,
    'You have no access to this console: none of your groups has a role on this host. Ask an administrator of this host.',
    '',
  ])
})

test('goal: claims that say less or more than a list of groups are refused in words', async () => {
  await using both = await start({ contact: 'it@example.org' })
  const { rig, provider } = both
  const messageFor = async (claims: SignInOptions['claims']) =>
    (await signIn(rig, provider, { claims: claims ?? {} })).message
  expect(await messageFor({ groups: undefined })).toContain('sent no claim groups. Ask it@example.org.')
  expect(await messageFor({ groups: { 'room-admins': true } })).toContain('neither text nor a list of texts')
  expect(await messageFor({ groups: ['room-admins', 7] })).toContain('neither text nor a list of texts')
  expect(await messageFor({ groups: undefined, _claim_names: { groups: 'src1' } })).toContain('more groups than')
  expect(await messageFor({ sub: 'a\u202eb' })).toContain('no visible ASCII text')
  expect(await messageFor({ sub: 'a'.repeat(256) })).toContain('no visible ASCII text')
})

test('goal: 10,000 groups are read; a token beyond the limit is refused, and the console stays', async () => {
  await using both = await start()
  const { rig, provider } = both
  const many = Array.from({ length: 10_000 }, () => crypto.randomUUID())
  expect((await signIn(rig, provider, { claims: { groups: [...many, 'room-admins'] } })).role).toBe('admin')
  const tooLarge = await signIn(rig, provider, { claims: { groups: [...many, ...many, ...many, ...many, ...many] } })
  expect([tooLarge.status, tooLarge.cookie]).toEqual([503, ''])
  expect(tooLarge.message).toContain('Passkeys and links work without it')
  expect((await signIn(rig, provider)).status).toBe(201)
})

test('goal: email_domains admits verified addresses of these domains alone', async () => {
  await using both = await start({ email_domains: ['example.org', 'k.example'] })
  const { rig, provider } = both
  const statusFor = async (claims: SignInOptions['claims']) =>
    (await signIn(rig, provider, { claims: claims ?? {} })).status
  expect(await statusFor({})).toBe(201)
  expect(await statusFor({ email: 'ada@EXAMPLE.org' })).toBe(201)
  expect(await statusFor({ email: 'ada@K.example' })).toBe(201)
  // The Kelvin sign becomes a "k" in lower case.
  expect(await statusFor({ email: 'ada@\u212a.example' })).toBe(403)
  expect(await statusFor({ email: 'ada@example.org.evil.example' })).toBe(403)
  expect(await statusFor({ email: 'ada@evil.example@example.org' })).toBe(403)
  expect(await statusFor({ email: 'ada@notexample.org' })).toBe(403)
  expect(await statusFor({ email: undefined })).toBe(403)
  expect(await statusFor({ email_verified: false })).toBe(403)
  expect(await statusFor({ email_verified: 'true' })).toBe(403)
  expect(await statusFor({ email_verified: undefined })).toBe(403)
})

test('goal: an ID token counts only if this provider signed it for this console, now, for this attempt', async () => {
  await using both = await start()
  const { rig, provider } = both
  const now = Math.floor(Date.now() / 1000)
  const key = provider.self.keys[0]
  if (key === undefined) throw new Error('no key')
  const rogue = await newKey('k1', 'RS256')
  const wrong: readonly (readonly [reason: string, SignInOptions])[] = [
    ['unexpected JWT "iss"', { claims: { iss: 'https://other.example' } }],
    ['unexpected JWT "iss"', { claims: { iss: `${provider.issuer}/` } }],
    ['unexpected JWT "aud"', { claims: { aud: 'another-client' } }],
    ['additional untrusted audiences', { claims: { aud: ['strongroom-console', 'another-client'] } }],
    ['unexpected ID Token "azp"', { claims: { aud: ['strongroom-console', 'another'], azp: 'another' } }],
    ['for another client ("azp")', { claims: { azp: 'another' } }],
    ['for another client ("azp")', { claims: { azp: null } }],
    ['of the future ("iat")', { claims: { iat: now + 90 } }],
    ['unexpected ID Token "nonce"', { claims: { nonce: 'x'.repeat(43) } }],
    ['"nonce" (nonce) claim missing', { claims: { nonce: undefined } }],
    ['"sub" (subject) claim missing', { claims: { sub: undefined } }],
    ['"exp" (expiration time) claim missing', { claims: { exp: undefined } }],
    ['"exp" (expiration time)', { claims: { exp: now - 90 } }],
    ['"nbf" (not before)', { claims: { nbf: now + 90 } }],
    ['unexpected JWT "alg"', { token: unsignedToken }],
    ['unexpected JWT "alg"', { token: token => confusedToken(key, token) }],
    ['JWT signature verification failed', { token: token => `${token.slice(0, -8)}AAAAAAAA` }],
    ['no applicable keys found', { header: { kid: 'k9' } }],
    ['no applicable keys found', { header: { alg: 'ES256' } }],
    ['"id_token" property must not be empty', { token: () => '' }],
  ]
  for (const [reason, options] of wrong) {
    // Log-ins have a limit for each minute.
    both.advance(6_000)
    const ended = await signIn(rig, provider, options)
    expect([ended.status, ended.cookie, both.reasons.splice(0)]).toEqual([403, '', [expect.stringContaining(reason)]])
  }
  both.advance(60_000)
  // A forger with a key of the same name.
  provider.self.keys = [rogue]
  expect([(await signIn(rig, provider)).status, both.reasons]).toEqual([403, [expect.stringContaining('signature')]])
  provider.self.keys = [key]
  expect((await signIn(rig, provider, { claims: { exp: now - 30, iat: now - 330 } })).status).toBe(201)
  expect((await signIn(rig, provider, { claims: { iat: now + 30, azp: 'strongroom-console' } })).status).toBe(201)
})

test('goal: an answer counts once, in the browser that began, for the state and issuer that it has', async () => {
  await using both = await start()
  const { rig, provider } = both
  const { url, cookie } = await begin(rig)
  const answer = await provider.signIn(url)
  const changed = (name: string, value: string | null) => {
    const query = new URLSearchParams(answer)
    if (value === null) query.delete(name)
    else query.set(name, value)
    return `?${query}`
  }
  const statusFor = async (given: string, own = cookie) => (await finish(rig, given, own)).status
  const victim = await begin(rig)
  const before = provider.requests.length
  // Log-in CSRF: a link with the attacker's answer, in a browser that began nothing, or something else.
  expect([await statusFor(answer, ''), await statusFor(answer, victim.cookie)]).toEqual([403, 403])
  expect(await statusFor(answer, `${cookie}; ${victim.cookie}`)).toBe(403)
  expect(await statusFor(changed('state', null))).toBe(403)
  expect(await statusFor(`${answer}&state=x`)).toBe(403)
  // Mix-up (RFC 9207).
  expect(await statusFor(changed('iss', 'https://other.example'))).toBe(403)
  expect(await statusFor(changed('iss', null))).toBe(403)
  expect(await statusFor(`${answer}&id_token=x`)).toBe(403)
  expect(await statusFor(changed('code', null))).toBe(403)
  expect(provider.requests.slice(before)).toEqual([])
  expect(await statusFor(changed('code', 'forged'))).toBe(403)
  expect(await statusFor(answer)).toBe(201)
  const again = await finish(rig, answer, cookie)
  expect([again.status, again.cookie]).toEqual([403, ''])
  expect(again.message).toContain('did not begin in this browser, was used')
  // Even a fresh code does not make the completed attempt count again.
  expect(await statusFor(await provider.signIn(url))).toBe(403)
  // An answer that ended in an error says which one, and nothing that is not one of OAuth's words.
  const second = await begin(rig)
  const state = new URL(second.url).searchParams.get('state') ?? ''
  const denied = await finish(
    rig,
    `?${new URLSearchParams({ error: 'access_denied', state, iss: provider.issuer })}`,
    second.cookie,
  )
  expect([denied.status, denied.message]).toEqual([
    403,
    'Example ID did not sign you in with "access_denied". Start again on the sign-in page.',
  ])
  const odd = `?${new URLSearchParams({ error: '<b>call 555</b>', state, iss: provider.issuer })}`
  expect((await finish(rig, odd, second.cookie)).message).not.toContain('555')
})

test('goal: another page can neither begin nor finish a sign-in; a session is never taken over', async () => {
  await using both = await start()
  const { rig, provider } = both
  const foreign = { ...pageHeaders('https://evil.example'), 'sec-fetch-site': 'cross-site' }
  for (const path of ['/api/session/oidc/begin', '/api/session/oidc']) {
    expect((await rig.send(path, { method: 'POST', headers: foreign, body: '{}' })).status).toBe(403)
    expect((await rig.send(path, { headers: { 'sec-fetch-site': 'cross-site' } })).status).toBe(403)
  }
  const root = await logIn(rig)
  const { url, cookie } = await begin(rig)
  const together = `${root}; ${cookie}`
  // A failed sign-in leaves the session that there is.
  expect((await finish(rig, '?code=x&state=y', together)).status).toBe(403)
  expect((await rig.send('/api/session', { headers: { cookie: root } })).status).toBe(200)
  // A fixed session cookie does not become that of the person: there is a new one, and the former ends.
  const ended = await finish(rig, await provider.signIn(url), together)
  expect(ended.status).toBe(201)
  expect(ended.cookie).not.toBe(root)
  expect((await rig.send('/api/session', { headers: { cookie: root } })).status).toBe(401)
})

test('goal: no passkey comes from a session of the provider, nor does a link', async () => {
  await using both = await start()
  const { rig, provider } = both
  const { cookie } = await signIn(rig, provider, { claims: { groups: ['room-admins'] } })
  const headers = pageHeaders(rig.origin, cookie)
  const post = (path: string, body = '{}') => rig.send(path, { method: 'POST', headers, body })
  const body = JSON.stringify({ name: 'x', response: { id: 'a', rawId: 'a', type: 'public-key', response: {} } })
  expect([(await post('/api/passkeys/options')).status, (await post('/api/passkeys', body)).status]).toEqual([403, 403])
  expect((await post('/api/operator/console/links')).status).toBe(403)
  // Nor does such a session remove the passkeys of others, which are the way in without the provider.
  const passkey = { id: 'cm9vdA', actor: 'root', role: 'admin', name: 'key', rpId: 'localhost' } as const
  insertPasskey(rig.store.ledger.db, { ...passkey, publicKey: Buffer.alloc(1), counter: 0, createdAtMs: 0 })
  const removal = await rig.send(`/api/passkeys/${passkey.id}`, { method: 'DELETE', headers })
  expect([removal.status, await removal.text()]).toEqual([403, expect.stringContaining('identity provider')])
  expect((await rig.asRoot('DELETE', `/console/passkeys/${passkey.id}`)).status).toBe(200)
  const closed = await rig.asRoot('POST', '/console/close', { as: 'oidc:f81d4fae' })
  expect(await closed.json()).toEqual({ sessions: 1 })
})

test('goal: while the provider is down people learn of passkeys and links, and both work; it recovers by itself', async () => {
  const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + aheadMs }
  let aheadMs = 0
  await using provider = await startProvider()
  await using rig = await startConsole({ clock, settings: { oidc: provider.config } })
  const path = '/realm/.well-known/openid-configuration'
  const causes: [string, () => Response][] = [
    ['a redirect', () => new Response(null, { status: 302, headers: { location: `${provider.issuer}/elsewhere` } })],
    ['an error', () => new Response('down', { status: 503 })],
    ['a page', () => new Response('<html>', { headers: { 'content-type': 'text/html' } })],
    ['a large document', () => Response.json({ issuer: provider.issuer, x: 'a'.repeat(3_000_000) })],
    ['another issuer', () => Response.json({ issuer: 'https://other.example' })],
    [
      'an endpoint without TLS',
      () => Response.json({ issuer: provider.issuer, authorization_endpoint: 'http://a.example' }),
    ],
  ]
  for (const [name, cause] of causes) {
    provider.self.instead.set(path, cause)
    const fault = await begin(rig).then(
      () => name,
      (error: Error) => error.message,
    )
    expect([name, fault]).toEqual([
      name,
      'Example ID cannot be used for sign-in now (the log of this host has the reason). Passkeys and links work without it.',
    ])
    // A failure is cached, so strangers cannot make the host ask all the time.
    const before = provider.requests.length
    await begin(rig).catch(() => {})
    expect([name, provider.requests.length - before]).toEqual([name, 0])
    aheadMs += 10_000
  }
  expect(provider.requests.filter(asked => asked.endsWith('/elsewhere'))).toEqual([])
  expect(await (await rig.send('/api/sign-in')).json()).toEqual({ oidc: { name: 'Example ID' } })
  expect((await rig.send('/api/session', { headers: { cookie: await logIn(rig) } })).status).toBe(200)
  provider.self.instead.delete(path)
  expect((await signIn(rig, provider)).status).toBe(201)
})

test('goal: a provider that fails during the exchange is named as down, with passkeys; its refusals have their details in the log', async () => {
  await using both = await start()
  const { rig, provider } = both
  const page = () => new Response('<html>', { headers: { 'content-type': 'text/html' } })
  const failures: readonly (readonly [path: string, reason: string, () => Response])[] = [
    ['token', 'answers with status 429', () => Response.json({ error: 'slow_down' }, { status: 429 })],
    ['token', 'status 200 and no JSON document of tokens', page],
    ['token', 'status 404 and no JSON document of tokens', () => new Response('gone', { status: 404 })],
    ['token', 'status 200 and no JSON document of tokens', () => Response.json(['a'])],
    ['keys', 'answers with status 503', () => new Response('down', { status: 503 })],
    ['keys', 'status 404 and no JSON document of keys', () => Response.json({ error: 'a' }, { status: 404 })],
    ['keys', 'status 200 and no JSON document of keys', page],
    ['keys', 'status 200 and no JSON document of keys', () => Response.json({ keys: {} })],
    ['keys', 'status 200 and no JSON document of keys', () => Response.json({ keys: [] })],
  ]
  for (const [path, reason, response] of failures) {
    both.advance(6_000)
    provider.self.instead.set(`/realm/${path}`, response)
    const ended = await signIn(rig, provider)
    expect([path, reason, ended.status]).toEqual([path, reason, 503])
    expect(ended.message).toContain('Passkeys and links work without it')
    expect(both.reasons.splice(0)).toEqual([expect.stringContaining(reason)])
    provider.self.instead.delete(`/realm/${path}`)
  }
  both.lines.length = 0
  const refusal = { error: 'invalid_client', error_description: 'AADSTS7000215: '.padEnd(400, 'x') }
  provider.self.instead.set('/realm/token', () => Response.json(refusal, { status: 401 }))
  expect((await signIn(rig, provider)).message).not.toContain('AADSTS')
  expect(both.lines).toMatchObject([{ status: 401, description: refusal.error_description.slice(0, 300) }])
  provider.self.instead.delete('/realm/token')
  expect((await signIn(rig, provider)).status).toBe(201)
})

test('goal: the secret goes as the provider wants it, is read each time, and a wrong one is named', async () => {
  await using both = await start()
  const { rig, provider } = both
  const posted: string[] = []
  provider.self.metadata = { token_endpoint_auth_methods_supported: ['client_secret_post'] }
  provider.self.instead.set('/realm/token', async request => {
    posted.push(new URLSearchParams(await request.text()).get('client_secret') ?? '')
    return Response.json({ error: 'invalid_client' }, { status: 401 })
  })
  const refused = await signIn(rig, provider)
  expect([refused.status, posted]).toEqual([403, [clientSecret]])
  expect(refused.message).toContain('did not sign you in with "invalid_client"')
  const challenge = { 'www-authenticate': 'Basic realm="id"' }
  const challenged = () => Response.json({ error: 'invalid_client' }, { status: 401, headers: challenge })
  const scripted = provider.self.instead.get('/realm/token')
  provider.self.instead.set('/realm/token', challenged)
  expect((await signIn(rig, provider)).message).toContain('did not sign you in with "invalid_client"')
  if (scripted !== undefined) provider.self.instead.set('/realm/token', scripted)
  writeFileSync(provider.secretFile, 'next')
  await signIn(rig, provider)
  expect(posted).toEqual([clientSecret, 'next'])
  rmSync(provider.secretFile)
  both.reasons.length = 0
  expect((await signIn(rig, provider)).status).toBe(503)
  expect(both.reasons).toEqual([expect.stringContaining('console.oidc.client_secret_file: ')])
})

test('goal: discovery and keys are cached; an unknown key is looked up again, at most once a minute', async () => {
  await using both = await start()
  const { rig, provider } = both
  const count = (path: string) => provider.requests.filter(asked => asked.endsWith(path)).length
  await Promise.all([begin(rig), begin(rig), begin(rig)])
  for (const _ of [1, 2]) expect((await signIn(rig, provider)).status).toBe(201)
  expect([count('/openid-configuration'), count('/keys')]).toEqual([1, 1])
  provider.self.keys = [await newKey('k2', 'ES256')]
  for (const _ of [1, 2]) expect((await signIn(rig, provider)).status).toBe(403)
  expect(count('/keys')).toBe(1)
  try {
    setSystemTime(new Date(Date.now() + 61_000))
    expect((await signIn(rig, provider)).status).toBe(201)
  } finally {
    setSystemTime()
  }
  expect([count('/openid-configuration'), count('/keys')]).toEqual([1, 2])
})

test('goal: without a provider the console offers none', async () => {
  await using rig = await startConsole()
  expect(await (await rig.send('/api/sign-in')).json()).toEqual({ oidc: null })
  expect((await finish(rig, '?code=x', '')).status).toBe(404)
})
