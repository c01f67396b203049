// Goal: a page of another site, a name that points to this host, a stolen or guessed secret and a client that sends too
// much or too slowly get nothing of the console, and cost it little.

import { expect, test } from 'bun:test'
import { connect } from 'node:tls'
import { linkToken, logIn, pageHeaders, startConsole, tenantKey } from '../../rigs/console/console.ts'

/** A clock that only the test moves. Certificates are judged by the clock of the machine, so it begins there. */
function handClock() {
  const startMs = Date.now()
  let passedMs = 0
  return {
    clock: {
      nowMs: () => startMs + passedMs,
      monotonicMs: () => passedMs,
      sleep: () => new Promise<void>(() => {}),
    },
    advance: (ms: number) => {
      passedMs += ms
    },
  }
}

test('goal: a request that names another host gets nothing, whatever it asks for', async () => {
  await using rig = await startConsole({ names: ['console.example.org', '192.0.2.7', '2001:db8::7'] })
  const cookie = await logIn(rig)
  const ask = async (host: string, path: string) =>
    (await rig.send(path, { headers: { host, cookie, origin: `https://${host}` } })).status
  const { port } = rig
  const good = [
    'console.example.org',
    `localhost:${port}`,
    '127.0.0.1',
    `[::1]:${port}`,
    '192.0.2.7',
    '[2001:db8:0::7]:1',
  ]
  for (const host of good)
    expect([host, await ask(host, '/'), await ask(host, '/api/session')]).toEqual([host, 200, 200])
  const bad = [
    'evil.example',
    `evil.example:${port}`,
    'localhost.evil.example',
    '192.0.2.8',
    'console.example.org.',
    'a@localhost',
  ]
  for (const host of bad) {
    for (const path of ['/', '/api/session', '/api/live', '/api/tenant', '/assets/x']) {
      expect([host, path, await ask(host, path)]).toEqual([host, path, 421])
    }
  }
})

test('goal: a change needs the origin of the console and its JSON, whoever has the cookie', async () => {
  await using rig = await startConsole()
  const cookie = await logIn(rig)
  const good = pageHeaders(rig.origin, cookie)
  const body = '{}'
  const suspend = async (headers: Record<string, string>) =>
    (await rig.send('/api/operator/organizations/acme/suspend', { method: 'POST', headers, body })).status
  const { origin: _origin, ...withoutOrigin } = good
  const refused: Record<string, string>[] = [
    withoutOrigin,
    { ...good, origin: 'https://evil.example' },
    { ...good, origin: 'null' },
    { ...good, origin: rig.origin.replace('https:', 'http:') },
    { ...good, origin: `https://localhost:${rig.port + 1}` },
    { ...good, 'sec-fetch-site': 'cross-site' },
    { ...good, 'sec-fetch-site': 'same-site' },
    { ...good, 'sec-fetch-site': 'none' },
  ]
  for (const headers of refused) expect([headers, await suspend(headers)]).toEqual([headers, 403])
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']) {
    expect([type, await suspend({ ...good, 'content-type': type })]).toEqual([type, 400])
  }
  expect(await suspend(good)).toBe(200)
})

test('goal: another site reads nothing by the cookie: no CORS, no frame, no script, no window', async () => {
  await using rig = await startConsole()
  const cookie = await logIn(rig)
  for (const path of [
    '/',
    '/api/session',
    '/api/operator/organizations',
    '/nothing',
    '/api/nothing',
    '/assets/nothing',
  ]) {
    const response = await rig.send(path, { headers: { cookie } })
    const { headers } = response
    expect([path, headers.get('access-control-allow-origin')]).toEqual([path, null])
    expect(headers.get('content-security-policy')).toContain("frame-ancestors 'none'")
    expect(headers.get('content-security-policy')).not.toContain('unsafe')
    expect(headers.get('cross-origin-resource-policy')).toBe('same-origin')
    expect(headers.get('cross-origin-opener-policy')).toBe('same-origin')
    expect([headers.get('x-frame-options'), headers.get('x-content-type-options')]).toEqual(['DENY', 'nosniff'])
    expect(headers.get('referrer-policy')).toBe('no-referrer')
    if (!path.startsWith('/a') && path !== '/') expect(headers.get('cache-control')).toBe('no-cache')
    if (path.startsWith('/api/')) expect(headers.get('cache-control')).toBe('no-store')
    // Opened as a page a document of the interface has neither scripts nor an origin; the page has both.
    const isData = headers.get('content-security-policy')?.includes("default-src 'none'; sandbox;") ?? false
    expect([path, isData]).toEqual([path, path.startsWith('/a')])
  }
  const crossRead = await rig.send('/api/session', { headers: { cookie, 'sec-fetch-site': 'cross-site' } })
  expect(crossRead.status).toBe(403)
  const preflight = await rig.send('/api/operator/organizations', {
    method: 'OPTIONS',
    headers: { origin: 'https://evil.example', 'access-control-request-method': 'POST' },
  })
  expect([preflight.status, preflight.headers.get('access-control-allow-origin')]).toEqual([403, null])
})

test('goal: a session that somebody else chose or guessed is none', async () => {
  await using rig = await startConsole()
  const token = await linkToken(rig)
  const chosen = `__Host-strongroom=${'A'.repeat(43)}`
  const headers = pageHeaders(rig.origin, chosen)
  const response = await rig.send('/api/session', { method: 'POST', headers, body: JSON.stringify({ token }) })
  expect(response.headers.get('set-cookie')).not.toContain('A'.repeat(43))
  const good = response.headers.get('set-cookie')?.split(';')[0] ?? ''
  const status = async (cookie: string) => (await rig.send('/api/session', { headers: { cookie } })).status
  expect(await status(good)).toBe(200)
  for (const cookie of [
    chosen,
    '',
    `${good}x`,
    good.slice(0, -1),
    good.replace('__Host-', ''),
    `${chosen}; ${good}`,
    `${good}; ${chosen}`,
  ]) {
    expect([cookie, await status(cookie)]).toEqual([cookie, 401])
  }
})

test('goal: guessing at links is slowed down, for the one address that does it', async () => {
  // It stands still: the limit fills again by time.
  await using rig = await startConsole({ clock: handClock().clock })
  const guess = async () => {
    const body = JSON.stringify({ token: 'A'.repeat(43) })
    const response = await rig.send('/api/session', { method: 'POST', headers: pageHeaders(rig.origin), body })
    return { status: response.status, retryAfter: response.headers.get('retry-after') }
  }
  const answers = []
  for (let count = 0; count < 40; count += 1) answers.push(await guess())
  expect(answers.filter(({ status }) => status === 403)).toHaveLength(30)
  expect(answers.filter(({ status, retryAfter }) => status === 429 && Number(retryAfter) > 0)).toHaveLength(10)
})

test('goal: a link is over after its minute, and one more of the same person takes the place of the oldest', async () => {
  const { clock, advance } = handClock()
  await using rig = await startConsole({ clock })
  const open = async (token: string) => {
    const body = JSON.stringify({ token })
    return (await rig.send('/api/session', { method: 'POST', headers: pageHeaders(rig.origin), body })).status
  }
  const first = await linkToken(rig)
  advance(59_999)
  const second = await linkToken(rig)
  expect(await open(first)).toBe(201)
  advance(60_000)
  expect(await open(second)).toBe(403)
  const tokens = []
  for (let count = 0; count < 9; count += 1) tokens.push(await linkToken(rig))
  expect([await open(tokens[0] ?? ''), await open(tokens[1] ?? ''), await open(tokens[8] ?? '')]).toEqual([
    403, 201, 201,
  ])
})

test('goal: a session ends when it is idle, whatever a page asks for by itself, and at its end in any case', async () => {
  const { clock, advance } = handClock()
  await using rig = await startConsole({ clock, settings: { session_idle_minutes: 10, session_hours: 1 } })
  const cookie = await logIn(rig)
  const ask = async (headers: Record<string, string> = {}) =>
    (await rig.send('/api/session', { headers: { cookie, ...headers } })).status
  advance(9 * 60_000)
  expect(await ask({ 'x-strongroom-background': '1' })).toBe(200)
  advance(60_000)
  expect(await ask()).toBe(401)
  const busy = await logIn(rig)
  for (let minutes = 0; minutes < 60; minutes += 5) {
    expect((await rig.send('/api/session', { headers: { cookie: busy } })).status).toBe(200)
    advance(5 * 60_000)
  }
  expect((await rig.send('/api/session', { headers: { cookie: busy } })).status).toBe(401)
})

test('goal: a body that is too large, no JSON or hostile is refused in words, before anything is done', async () => {
  await using rig = await startConsole()
  const headers = pageHeaders(rig.origin)
  const post = async (body: string) => (await rig.send('/api/session', { method: 'POST', headers, body })).status
  expect(await post(JSON.stringify({ token: 'x'.repeat(100_000) }))).toBe(413)
  for (const body of ['', '{', '[]', 'null', '{"token":1}', '{"token":"a","token":"b"}', `${'['.repeat(50)}`]) {
    expect([body, await post(body)]).toEqual([body, 400])
  }
  expect(await post('{"token":"x"}')).toBe(403)
})

test('goal: two Host headers, a path that climbs and a long one get nothing but the page', async () => {
  await using rig = await startConsole()
  const { port, ca } = rig
  const raw = (text: string) =>
    new Promise<string>((resolve, reject) => {
      const socket = connect({ host: '127.0.0.1', port, ca, servername: 'localhost' }, () => socket.write(text))
      let read = ''
      socket.on('data', (data: Buffer) => {
        read += data.toString()
        socket.end()
      })
      socket.on('close', () => resolve(read))
      socket.on('error', reject)
    })
  const two = await raw(
    `GET /api/session HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n`,
  )
  expect(two).toMatch(/^HTTP\/1\.1 4/)
  const none = await raw(`GET /api/session HTTP/1.0\r\n\r\n`)
  expect(none).toMatch(/^HTTP\/1\.[01] 4/)
  const climbing = await rig.send('/api/operator/..%2f..%2fstatus', { headers: { cookie: await logIn(rig) } })
  expect(climbing.status).toBe(404)
})

test('goal: a failure of ours says nothing of itself', async () => {
  await using rig = await startConsole({
    services: {
      instances: {
        fetch: async () => {
          throw new Error('secret path /var/lib/x')
        },
      },
    },
  })
  const authorization = `Bearer ${tenantKey(rig, 'ca')}`
  const response = await rig.send('/api/tenant/instances/v1/instances', { headers: { authorization } })
  expect([response.status, await response.text()]).toEqual([500, expect.not.stringContaining('secret')])
})
