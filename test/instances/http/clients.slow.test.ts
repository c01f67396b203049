// Clients that are slow, break off, or speak no proper HTTP, over raw sockets.

import { describe, expect, test } from 'bun:test'
import { type Appliance, limits, publicKey, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { until } from '../../../scripts/rigs/until.ts'

const valid = { public_key: publicKey }
const validText = JSON.stringify(valid)

describe('slow and broken clients', () => {
  const head = (appliance: Appliance, length: string) =>
    `POST /v1/instances HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer ${appliance.keys.acme}\r\n${length}\r\n\r\n`

  for (const [kind, length, part] of [
    ['a Content-Length', 'Content-Length: 200', '{"public'],
    ['chunks', 'Transfer-Encoding: chunked', '8\r\n{"public\r\n'],
    ['nothing at all', 'Content-Length: 200', ''],
  ] as const) {
    // Goal: a body that does not arrive in time ends in 408 and a closed connection, and holds up nobody meanwhile.
    test(`a slow body with ${kind}`, async () => {
      await using appliance = await startAppliance()
      const slow = appliance.raw([head(appliance, length), part], () => false)
      await appliance.bodyAwaited()
      for (let i = 0; i < 3; i += 1)
        expect((await appliance.send('POST', '/v1/instances', { body: valid })).status).toBe(202)
      appliance.clock.advance(limits.timeoutMs - 1)
      expect((await appliance.send('GET', '/v1/instances')).status).toBe(200)
      appliance.clock.advance(1)
      const received = await slow
      expect(received).toStartWith('HTTP/1.1 408 ')
      expect(received).toMatch(/connection: close\r\n/i)
      const { error } = JSON.parse(received.split('\r\n\r\n')[1] ?? '')
      expect(error).toEqual({ code: 'invalid_request', message: 'The body did not arrive within 15000 ms.' })
    })
  }

  // Goal: a hundred clients that stop in mid-body do not keep others waiting.
  test('many slow bodies', async () => {
    await using appliance = await startAppliance()
    const slow = Array.from({ length: 100 }, () =>
      appliance.raw([head(appliance, 'Content-Length: 200'), '{'], text => text.includes('}}')),
    )
    await until('all bodies have begun', 10_000, () => appliance.pendingRequests() === 100)
    expect((await appliance.send('POST', '/v1/instances', { body: valid })).status).toBe(202)
    appliance.clock.advance(limits.timeoutMs)
    for (const received of await Promise.all(slow)) expect(received).toStartWith('HTTP/1.1 408 ')
  })

  // Goal: a client without a valid key is answered before its body is read.
  test('authentication comes before the body', async () => {
    await using appliance = await startAppliance()
    const received = await appliance.raw(
      [
        'POST /v1/instances HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer nonsense\r\nContent-Length: 200\r\n\r\n',
      ],
      text => text.includes('}}'),
    )
    expect(received).toStartWith('HTTP/1.1 401 ')
  })

  // Goal: a length beyond the limit is refused from the header alone.
  test('a huge Content-Length', async () => {
    await using appliance = await startAppliance()
    const raw = appliance.raw([head(appliance, 'Content-Length: 99999999999')], () => false)
    // A client that sends no byte of it waits a moment, not for the end of the body.
    await appliance.bodyAwaited()
    appliance.clock.advance(2_000)
    const received = await raw
    expect(received).toStartWith('HTTP/1.1 413 ')
    expect(received).toContain('The body is larger than 65536 bytes.')
  })

  // Goal: a client that goes away in mid-body is no failure of ours and creates nothing.
  test('a body cut off', async () => {
    await using appliance = await startAppliance()
    const socket = await Bun.connect({ hostname: '127.0.0.1', port: appliance.port, socket: { data: () => {} } })
    socket.write(`${head(appliance, 'Content-Length: 200')}{`)
    await appliance.bodyAwaited()
    socket.terminate()
    const line = await appliance.lineLogged(text => text.includes('"message":"request"'))
    expect(JSON.parse(line)).toMatchObject({ level: 'info', status: 400 })
    expect(appliance.logged).toHaveLength(1)
    expect(appliance.calls).toEqual([])
  })

  const MALFORMED = {
    'no HTTP': 'GARBAGE\r\n\r\n',
    'no Host': 'GET /v1/instances HTTP/1.1\r\n\r\n',
    'a NUL in the path': 'GET /v1/\0instances HTTP/1.1\r\nHost: a.example\r\n\r\n',
    'a space in a header name': 'GET /v1/instances HTTP/1.1\r\nHost: a.example\r\nX Y: z\r\n\r\n',
    'both lengths':
      'POST /v1/instances HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'two lengths':
      'POST /v1/instances HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd',
    'a negative length': 'POST /v1/instances HTTP/1.1\r\nHost: a.example\r\nContent-Length: -3\r\n\r\nabc',
    'an endless request line': `GET /${'a'.repeat(70_000)} HTTP/1.1\r\nHost: a.example\r\n\r\n`,
    'a URL over 16 KiB': `GET /v1/instances?${'a'.repeat(16_385)} HTTP/1.1\r\nHost: a.example\r\n\r\n`,
    'a header over 16 KiB': `GET /v1/instances HTTP/1.1\r\nHost: a.example\r\nX: ${'a'.repeat(16_385)}\r\n\r\n`,
  } as const
  for (const [what, message] of Object.entries(MALFORMED)) {
    // Goal: what is no HTTP is refused and closed without a word about us, and the server goes on.
    test(`a message with ${what}`, async () => {
      await using appliance = await startAppliance()
      const received = await appliance.raw([message], () => false)
      expect(received).toMatch(/^HTTP\/1\.1 (400|413|414|431|505) [^\r]*\r\nConnection: close\r\n\r\n$/)
      expect((await appliance.send('GET', '/v1/instances')).status).toBe(200)
    })
  }

  // Goal: a method that HTTP does not register is no message of HTTP for the runtime, which closes the connection; a
  // registered one that a path does not have gets the envelope.
  test('unknown methods', async () => {
    await using appliance = await startAppliance()
    const sent = (method: string) =>
      appliance.raw([`${method} /v1/instances HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n`], () => false)
    for (const method of ['BREW', 'get', 'X-Y']) expect([method, await sent(method)]).toEqual([method, ''])
    for (const method of ['PROPFIND', 'PURGE', 'PATCH']) {
      expect([method, await sent(method)]).toEqual([method, expect.stringMatching(/^HTTP\/1\.1 401 .*"request_id"/s)])
    }
    expect((await appliance.send('PATCH', '/v1/instances')).status).toBe(405)
  })

  // Goal: after an early refusal the rest of the body is never taken for the next request.
  test('no request smuggling through an unread body', async () => {
    await using appliance = await startAppliance()
    const smuggled = `DELETE /v1/usage HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer ${appliance.keys.acme}\r\n\r\n`
    const next = 'GET /nothing HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n'
    const received = await appliance.raw(
      [
        `POST /v1/instances HTTP/1.1\r\nHost: a.example\r\nContent-Length: ${smuggled.length}\r\n\r\n${smuggled}${next}`,
      ],
      () => false,
    )
    expect([...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status)).toEqual(['401', '404'])
  })

  // Goal: a header sent twice is refused where two values would leave a choice.
  test('duplicate headers', async () => {
    await using appliance = await startAppliance()
    const authorization = `Authorization: Bearer ${appliance.keys.acme}\r\n`
    const post = (headers: string) =>
      appliance.raw(
        [
          `POST /v1/instances HTTP/1.1\r\nHost: a.example\r\n${headers}Content-Length: ${validText.length}\r\n\r\n${validText}`,
        ],
        text => text.endsWith('}}'),
      )
    expect(await post(authorization + authorization)).toStartWith('HTTP/1.1 401 ')
    for (const second of ['two', 'one', '']) {
      const received = await post(`${authorization}Idempotency-Key: one\r\nIdempotency-Key: ${second}\r\n`)
      expect(received).toStartWith('HTTP/1.1 400 ')
      expect(received).toContain('"param":"Idempotency-Key"')
    }
    expect(
      await post(`${authorization}Content-Type: application/json\r\nContent-Type: application/json\r\n`),
    ).toStartWith('HTTP/1.1 400 ')
    expect(appliance.calls).toEqual([])
    expect(await post(authorization)).toStartWith('HTTP/1.1 202 ')
  })
})
