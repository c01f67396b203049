// The HTTP surface around the routes: paths and methods, request and correlation ids, failures of ours, the access log.

import { describe, expect, test } from 'bun:test'
import { publicKey, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { Fault } from '../../../src/base/fault.ts'
import { expectNothingLeaks, failed, play, type Scenario } from '../../rigs/scenario.ts'

const valid = { public_key: publicKey }
const validText = JSON.stringify(valid)

const OFF_ROUTE: readonly Scenario[] = [
  ...[
    '/',
    '/v1',
    '/v1/',
    '/v1/instances/',
    '/v1/instances/abcd1234/x',
    '/v2/instances',
    '/health',
    '/metrics',
    '/V1/instances',
    '/openapi.json/',
    '/v1/usage/../instances/x/y',
    '/%2e%2e/etc/passwd',
    '/.env',
    '/__proto__',
  ].map(
    (path): Scenario => ({
      goal: `asks for ${path}`,
      method: 'GET',
      path,
      status: 404,
      answer: failed('not_found', 'There is nothing at this path.'),
    }),
  ),
  {
    goal: 'posts to nowhere without a key',
    method: 'POST',
    path: '/v1/nothing',
    key: null,
    bytes: '{',
    status: 404,
    answer: failed('not_found', 'There is nothing at this path.'),
  },
  ...[
    ['PUT', '/v1/instances', 'GET, HEAD, OPTIONS, POST'],
    ['PATCH', '/v1/instances/abcd1234', 'DELETE, GET, HEAD, OPTIONS'],
    ['POST', '/v1/instances/abcd1234', 'DELETE, GET, HEAD, OPTIONS'],
    ['DELETE', '/v1/instances', 'GET, HEAD, OPTIONS, POST'],
    ['DELETE', '/v1/usage', 'GET, HEAD, OPTIONS'],
    ['POST', '/openapi.json', 'GET, HEAD, OPTIONS'],
  ].map(
    ([method = '', path = '', allow = '']): Scenario => ({
      goal: `sends ${method} to ${path}`,
      method,
      path,
      status: 405,
      answer: failed('invalid_request', `The methods here are ${allow}.`),
      expectHeaders: { allow },
    }),
  ),
  {
    goal: 'sends a wrong method without a key',
    method: 'PUT',
    path: '/v1/instances',
    key: null,
    status: 401,
    answer: failed('unauthenticated', 'The Bearer token is missing or invalid.'),
    expectHeaders: { allow: null },
  },
  {
    goal: 'sends a wrong method to a public path without a key',
    method: 'PUT',
    path: '/openapi.json',
    key: null,
    status: 405,
    answer: failed('invalid_request', 'The methods here are GET, HEAD, OPTIONS.'),
  },
]

describe('paths and methods', () => {
  for (const scenario of OFF_ROUTE) {
    // Goal: what is not a route is refused in the envelope: 404 for any unknown path, 405 with Allow for a known one.
    test(`a client ${scenario.goal}`, async () => {
      await using appliance = await startAppliance()
      await play(appliance, scenario)
    })
  }

  // Goal: HEAD is GET without the body, authenticated alike; OPTIONS names the methods and nothing more.
  test('HEAD and OPTIONS', async () => {
    await using appliance = await startAppliance()
    const head = await appliance.send('HEAD', '/v1/instances')
    const get = await appliance.send('GET', '/v1/instances')
    expect([head.status, head.text, head.headers.get('content-length')]).toEqual([200, '', String(get.text.length)])
    expect(head.headers.get('x-request-id')).not.toBe(get.headers.get('x-request-id'))
    expect((await appliance.send('HEAD', '/v1/instances', { key: null })).status).toBe(401)
    expect((await appliance.send('HEAD', '/nothing')).status).toBe(404)
    const options = await appliance.send('OPTIONS', '/v1/instances/abcd1234', {
      key: null,
      headers: { Origin: 'https://evil.example' },
    })
    expect([options.status, options.text, options.headers.get('allow')]).toEqual([
      204,
      '',
      'DELETE, GET, HEAD, OPTIONS',
    ])
    expect(options.headers.get('access-control-allow-origin')).toBeNull()
    expect((await appliance.send('OPTIONS', '/nothing')).status).toBe(404)
  })

  // Goal: the Host header, absent or strange, does not change which route a path means.
  test('any Host header', async () => {
    await using appliance = await startAppliance()
    const get = (path: string, host: string, version = '1.1') =>
      appliance.raw(
        [`GET ${path} HTTP/${version}\r\n${host}Authorization: Bearer ${appliance.keys.acme}\r\n\r\n`],
        text => /\r\n\r\n.*\}$/s.test(text),
      )
    for (const host of [
      'Host: x\r\n',
      'Host: x:1\r\n',
      'Host: a.example\r\n',
      'Host: a b\x80\r\n',
      `Host: ${'h'.repeat(300)}\r\n`,
    ]) {
      expect(await get('/v1/instances', host)).toStartWith('HTTP/1.1 200 ')
      expect(await get('/v1/usage', host)).toContain('instance_hours_used')
      expect(await get('/aaa/v1/usage', host)).toStartWith('HTTP/1.1 404 ')
    }
    expect(await get('/v1/usage', '', '1.0')).toContain('instance_hours_used')
    expect(await get('http://other.example/v1/usage', 'Host: x\r\n')).toStartWith('HTTP/1.1 ')
    const posted = await appliance.raw(
      [
        `POST /v1/instances HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${appliance.keys.acme}\r\nTransfer-Encoding: chunked\r\n\r\n`,
        `${validText.length.toString(16)}\r\n${validText}\r\n`,
        '0\r\n\r\n',
      ],
      text => text.includes('}}'),
    )
    expect(posted).toStartWith('HTTP/1.1 202 ')
  })

  // Goal: two Host headers are refused in the envelope, before the key is looked at (RFC 9112 3.2).
  test('two Host headers', async () => {
    await using appliance = await startAppliance()
    const received = await appliance.raw(
      [`GET /v1/usage HTTP/1.1\r\nHost: a\r\nHost: b\r\nAuthorization: Bearer ${appliance.keys.acme}\r\n\r\n`],
      text => text.endsWith('}}') || text.includes('HTTP/1.1 200'),
    )
    expect(received).toStartWith('HTTP/1.1 400 ')
    expect(JSON.parse(received.split('\r\n\r\n')[1] ?? '')).toMatchObject({
      request_id: expect.stringMatching(/^req_/),
      error: { code: 'invalid_request', message: 'The Host header must be sent once, with one host.' },
    })
  })

  // Goal: rare methods and targets that Bun lets through are answered in the envelope too.
  test('rare methods and targets', async () => {
    await using appliance = await startAppliance()
    const ODD = {
      'TRACE /v1/usage HTTP/1.1\r\nHost: x': 401,
      'M-SEARCH /v1/usage HTTP/1.1\r\nHost: a.example': 401,
      'CONNECT a.example:443 HTTP/1.1\r\nHost: x': 404,
      'GET /v1/usage HTTP/1.1\r\nHost: a/b?c#d': 401,
      'GET /v1/usage HTTP/1.1\r\nHost: ': 401,
      'GET //a.example/v1/usage HTTP/1.0': 404,
      'GET /?x HTTP/1.0': 404,
    }
    for (const [head, status] of Object.entries(ODD)) {
      const received = await appliance.raw([`${head}\r\n\r\n`], text => text.endsWith('}}'))
      expect([head, received.slice(0, 12)]).toEqual([head, `HTTP/1.1 ${status}`])
      expect(received).toContain('"request_id":"req_')
    }
  })
})

describe('request and correlation ids', () => {
  // Goal: the request id is ours on every answer, whatever the client sends, and never the same twice.
  test('request ids', async () => {
    await using appliance = await startAppliance()
    const seen = new Set<string>()
    for (const [method, path, status] of [
      ['GET', '/v1/instances', 200],
      ['GET', '/nothing', 404],
      ['PUT', '/v1/usage', 405],
      ['POST', '/v1/instances', 400],
      ['OPTIONS', '/v1/usage', 204],
      ['GET', '/openapi.json', 200],
    ] as const) {
      const answer = await appliance.send(method, path, { headers: { 'X-Request-ID': 'req_mine' } })
      expect(answer.status).toBe(status)
      seen.add(answer.headers.get('x-request-id') ?? 'none')
    }
    expect(seen.size).toBe(6)
    for (const id of seen) expect(id).toMatch(/^req_[a-z0-9]{24}$/)
  })

  const CORRELATIONS: readonly (readonly [sent: string | Uint8Array, body: string, header: string])[] = [
    ['abc', 'abc', 'abc'],
    ['', '', ''],
    ['  spaced  ', 'spaced', 'spaced'],
    ['a, b; c="d"', 'a, b; c="d"', 'a, b; c="d"'],
    ['<script>"\\', '<script>"\\', '<script>"\\'],
    ['a\tb', 'a\tb', 'a\tb'],
    [Buffer.from('caf\u00e9', 'latin1'), 'café', 'caf\u00e9'],
    [Buffer.from('€ 🎉', 'utf8'), '€ 🎉', Buffer.from('€ 🎉', 'utf8').toString('latin1')],
    ['x'.repeat(8_000), 'x'.repeat(8_000), 'x'.repeat(8_000)],
  ]
  for (const [sent, body, header] of CORRELATIONS) {
    // Goal: a correlation id comes back in body and header as it came, on success and on failure, whatever its bytes.
    test(`correlation id ${JSON.stringify(body.slice(0, 20))}`, async () => {
      await using appliance = await startAppliance()
      for (const path of ['/v1/instances', '/nothing']) {
        const received = await appliance.raw(
          [
            `GET ${path} HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer ${appliance.keys.acme}\r\nX-Correlation-ID: `,
            sent,
            '\r\n\r\n',
          ],
          text => text.endsWith('}'),
        )
        const [head = '', text = ''] = received.split('\r\n\r\n')
        expect(JSON.parse(Buffer.from(text, 'latin1').toString()).correlation_id).toBe(body)
        expect(
          head
            .split('\r\n')
            .filter(line => /^x-correlation-id:/i.test(line))
            .map(line => line.slice('x-correlation-id:'.length).trim()),
        ).toEqual([header])
      }
    })
  }

  // Goal: without a correlation id the body has null and no header is sent; values that could split an answer never
  // pass.
  test('no correlation id', async () => {
    await using appliance = await startAppliance()
    const answer = await appliance.send('GET', '/v1/instances')
    expect(answer.json.correlation_id).toBeNull()
    expect(answer.headers.has('x-correlation-id')).toBe(false)
    for (const value of ['a\rSet-Cookie: b', 'a\0b', 'a\x07b', 'a\r\n b']) {
      const received = await appliance.raw(
        [
          `GET /v1/instances HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer ${appliance.keys.acme}\r\nX-Correlation-ID: ${value}\r\n\r\n`,
        ],
        () => false,
      )
      expect(received).toBe('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n')
    }
  })
})

describe('failures of ours', () => {
  const secret = "SQLITE_ERROR near 'x' at /opt/place/db.ts:1:2"
  const THROWN: Record<string, () => unknown> = {
    'an Error': () => new Error(secret),
    'an Error with a code and a status of its own': () =>
      Object.assign(new Error(secret), { code: 'VALIDATION', status: 200 }),
    'an internal Fault': () => new Fault('store.newer', secret, { cause: new Error(secret) }),
    'a text': () => secret,
    null: () => null,
    undefined: () => undefined,
    'a Response': () => ({ response: secret, status: 200 }),
  }
  for (const [what, thrown] of Object.entries(THROWN)) {
    // Goal: whatever is thrown, the client gets the internal error, and the log the cause under the same request id.
    test(`a route throws ${what}`, async () => {
      await using appliance = await startAppliance({
        routes: [
          {
            id: 'throws',
            method: 'GET',
            path: '/v1/instances',
            isPublic: false,
            row: () => {
              throw thrown()
            },
          },
        ],
      })
      const answer = await play(appliance, {
        goal: 'meets a bug',
        method: 'GET',
        path: '/v1/instances',
        status: 500,
        answer: failed('internal_error', 'An unexpected error occurred.'),
        absent: ['/opt/place', 'near', 'is not an object'],
      })
      const [line = ''] = appliance.logged.filter(text => text.includes('"level":"error"'))
      expect(appliance.logged.at(-1)).toContain('"level":"warn"')
      expect(JSON.parse(line).request_id).toBe(answer.json.request_id)
      if (String(thrown()).includes('SQLITE')) expect(line).toContain('SQLITE_ERROR')
    })
  }

  // Goal: a lost database is a 500 in the envelope on every route, without a word of SQL.
  test('the database is gone', async () => {
    await using appliance = await startAppliance()
    appliance.store.close()
    for (const [method, path] of [
      ['GET', '/v1/instances'],
      ['POST', '/v1/instances'],
      ['GET', '/v1/usage'],
    ] as const) {
      const answer = await appliance.send(method, path, method === 'POST' ? { body: valid } : {})
      expect([answer.status, answer.error]).toEqual([
        500,
        { code: 'internal_error', message: 'An unexpected error occurred.' },
      ])
      expectNothingLeaks(appliance, answer, ['database', 'closed'])
    }
  })
})

// Goal: one line per request with the path's template, never the path, the key, the body or a query.
test('the access log', async () => {
  await using appliance = await startAppliance()
  const { name } = await appliance.create()
  await appliance.send('GET', `/v1/instances/${name}?token=never-to-be-logged`)
  await appliance.send('GET', '/secret/path')
  await appliance.send('GET', '/v1/usage', { key: 'ca_abcdefgh_notavalidkeyatall0' })
  const lines = appliance.logged.map(line => JSON.parse(line)).filter(({ message }) => message === 'request')
  expect(lines.map(({ method, path, status, organization }) => [method, path, status, organization])).toEqual([
    ['POST', '/v1/instances', 202, 'acme'],
    ['GET', '/v1/instances/:name', 200, 'acme'],
    ['GET', '(unknown)', 404, null],
    ['GET', '/v1/usage', 401, null],
  ])
  // Reads that succeed are not what an operator looks for; changes and refusals are.
  expect(lines.map(({ level }) => level)).toEqual(['info', 'debug', 'info', 'info'])
  for (const line of lines) expect(line).toMatchObject({ ms: 0, request_id: expect.stringMatching(/^req_/) })
  // Requests without a key cannot fill the journal, which would drop lines that the operator needs.
  for (let count = 0; count < 300; count += 1) await appliance.send('GET', '/v1/usage', { key: null })
  const seen = () => appliance.logged.map(line => JSON.parse(line)).filter(({ level }) => level === 'info').length
  expect(seen()).toBe(121)
  await appliance.send('DELETE', `/v1/instances/${name}`)
  // They are counted, and once a minute one line has the count.
  await appliance.clock.elapse(120_000)
  const counted = appliance.logged.map(line => JSON.parse(line)).filter(({ left_out }) => left_out !== undefined)
  expect(counted).toEqual([expect.objectContaining({ level: 'info', left_out: 182 })])
  expect(appliance.metrics()).toContain('strongroom_requests_without_key_total{logged="no"} 182\n')
  expect(appliance.metrics()).toContain('strongroom_requests_without_key_total{logged="yes"} 120\n')
  await appliance.send('GET', '/v1/usage', { key: null })
  expect(seen()).toBe(124)
  const all = appliance.logged.join('\n')
  for (const hidden of [
    name,
    'never-to-be-logged',
    'secret',
    'ssh-ed25519',
    'notavalidkey',
    ...Object.values(appliance.keys),
  ])
    expect(all).not.toContain(hidden)
})
