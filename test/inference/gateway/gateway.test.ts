// The gateway over HTTP: every status of the contract, what reaches upstreams and clients, receipts.

import { describe, expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import {
  chatBody,
  eachWithGateway,
  IMPATIENT,
  KEY,
  LIMITS,
  MODEL,
  startGateway,
  type TestGateway,
  target,
} from '../../../scripts/rigs/gateway/server.ts'
import { chargedTo, isEnclave, needsHost, viewOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import {
  delta,
  openSse,
  sendJson,
  sse,
  type TestUpstream,
  USAGE,
  wellBehaved,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { Fault } from '../../../src/base/fault.ts'
import { GatewayError, GatewayHealth, GatewayModelList } from '../../../src/contract/http/inference.ts'
import { eventsOf, openAiFaults } from '../../rigs/gateway/openai-schema.ts'
import { openSocket } from '../../rigs/gateway/socket.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})

const CHAT = '/v1/chat/completions'
const auth = { authorization: `Bearer ${KEY}` }

async function errorOf(answer: Response): Promise<GatewayError['error']> {
  const body: unknown = await answer.json()
  expect([...Value.Errors(GatewayError, body)]).toEqual([])
  return Value.Decode(GatewayError, body).error
}

describe('routes', () => {
  // Goal: every route, method and missing key has its documented status and code, and nothing else reaches an upstream.
  test('by table', async () => {
    const rows: [method: string, path: string, headers: Record<string, string>, status: number, code: string | null][] =
      [
        ['GET', '/health', {}, 200, null],
        ['HEAD', '/health', {}, 200, null],
        ['GET', '/health?x=1', {}, 200, null],
        ['POST', '/health', {}, 405, 'method_not_allowed'],
        ['GET', '/openapi.json', {}, 200, null],
        // A gateway in a VM has evidence, but not without a nonce.
        isEnclave
          ? ['GET', '/attestation', {}, 400, 'invalid_request']
          : ['GET', '/attestation', {}, 503, 'attestation_unavailable'],
        ['GET', '/', {}, 404, 'not_found'],
        ['GET', '/health/', {}, 404, 'not_found'],
        ['GET', '/v1/models', auth, 200, null],
        ['GET', '/v1/models', {}, 401, 'unauthenticated'],
        ['GET', '/v1/models', { authorization: 'Bearer nonsense' }, 401, 'unauthenticated'],
        ['DELETE', '/v1/models', auth, 405, 'method_not_allowed'],
        ['DELETE', '/v1/models', {}, 401, 'unauthenticated'],
        ['GET', CHAT, auth, 405, 'method_not_allowed'],
        ['POST', CHAT, {}, 401, 'unauthenticated'],
        ['POST', '/v1/completions', {}, 401, 'unauthenticated'],
        ['POST', CHAT, auth, 400, 'invalid_request'],
        ['GET', '/v1/nothing', auth, 404, 'not_found'],
        ['GET', '/v1/nothing', {}, 401, 'unauthenticated'],
      ]
    for (const [method, path, headers, status, code] of rows) {
      const answer = await fetch(gateway.url + path, { method, headers })
      expect([method, path, answer.status]).toEqual([method, path, status])
      expect(answer.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/)
      if (code !== null) {
        expect((await errorOf(answer)).code).toBe(code as GatewayError['error']['code'])
        expect(answer.headers.get('x-should-retry')).toBe('false')
      }
    }
    expect(upstream.seen).toEqual([])
  })

  // Goal: models and health are exactly the contract's.
  test('models and health', async () => {
    const models: unknown = await (await fetch(`${gateway.url}/v1/models`, { headers: auth })).json()
    expect(Value.Check(GatewayModelList, models)).toBe(true)
    // Beside these fields the worker of a VM says its context.
    expect(models).toMatchObject({
      object: 'list',
      data: gateway.models.map(id => ({ id, object: 'model', created: expect.any(Number), owned_by: 'strongroom' })),
    })
    expect(Value.Check(GatewayHealth, await (await fetch(`${gateway.url}/health`)).json())).toBe(true)
  })

  // Goal: the attestation handler's responses and Faults reach the client, its internals do not.
  test.skipIf(needsHost('faults of the attestation are made up'))('attestation', async () => {
    const faults = [
      new Fault('conflict', 'used'),
      new Fault('invalid_request', 'nonce'),
      new Fault('store.corrupt', 'leak'),
    ]
    for (const [fault, status] of faults.map((fault, at) => [fault, [409, 400, 500][at]] as const)) {
      const attestation = () => {
        throw fault
      }
      await using gateway = await startGateway([target(upstream.url)], { host: { attestation } })
      const answer = await fetch(`${gateway.url}/attestation`)
      expect(answer.status).toBe(status ?? 0)
      expect((await errorOf(answer)).message).not.toContain('leak')
    }
  })
})

describe('bodies', () => {
  // Goal: 413 at exactly limit + 1, for a declared length and for chunks alike; at the limit it passes.
  test('413', async () => {
    for (const isChunked of [false, true]) {
      for (const [extra, status] of [
        [0, 200],
        [1, 413],
      ] as const) {
        const base = JSON.stringify(chatBody({ messages: [{ role: 'user', content: '' }] }))
        const text = JSON.stringify(
          chatBody({ messages: [{ role: 'user', content: 'x'.repeat(LIMITS.bodyBytesMax + extra - base.length) }] }),
        )
        expect(text.length).toBe(LIMITS.bodyBytesMax + extra)
        const body = isChunked ? new Blob([text]).stream() : text
        const answer = await fetch(gateway.url + CHAT, { method: 'POST', headers: auth, body })
        expect([isChunked, extra, answer.status]).toEqual([isChunked, extra, status])
        if (status === 413) expect((await errorOf(answer)).code).toBe('body_too_large')
      }
    }
  })

  /** Sends a head that promises a body, and never sends it. */
  const headOnly = (key: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const socket = openSocket(gateway.url, () => {
        socket.write(`POST ${CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\nContent-Length: 100\r\n\r\n{`)
      })
      socket.setTimeout(15_000, () => reject(new Error('no answer')))
      socket.on('data', data => {
        resolve(data.toString().split('\r\n')[0] ?? '')
        socket.destroy()
      })
      socket.on('error', reject)
    })

  // Goal: a wrong key is refused without waiting for the body, a right one after the body's time.
  test('401 before the body, 408 for a body that does not come', async () => {
    await using impatient = await startGateway([target(upstream.url)], { limits: IMPATIENT })
    gateway = impatient
    expect(await headOnly('nonsense')).toContain('401')
    expect(await headOnly(KEY)).toContain('408')
    expect((await viewOf(gateway)).running).toBe(0)
    expect(await chargedTo(gateway, KEY)).toEqual({ requests: 1, tokens: 0 })
  })
})

describe('limits', () => {
  // Goal: a refusal is a 429 with Retry-After and x-ratelimit-*, which clients retry, and no upstream is asked.
  test('429', async () => {
    const limits = { caller: { requestsPerMinute: 1 }, publicRequestsPerMinute: 1 }
    await using limited = await startGateway([target(upstream.url)], limits)
    expect([(await limited.chat()).status, (await fetch(`${limited.url}/health`)).status]).toEqual([200, 200])
    const refused = await limited.chat()
    expect(refused.headers.get('x-ratelimit-remaining-requests')).toBe('0')
    const answers = [refused, await fetch(`${limited.url}/health`), await fetch(`${limited.url}/attestation`)]
    for (const answer of answers) {
      expect(answer.status).toBe(429)
      // A window is a minute and the second that it began in.
      expect(answer.headers.get('retry-after')).toMatch(/^(?:[1-5]?\d|60|61)$/)
      expect(answer.headers.get('x-should-retry')).toBe('true')
      expect((await errorOf(answer)).code).toBe('rate_limited')
    }
    expect(upstream.seen.length).toBe(1)
    expect((await gateway.chat()).headers.get('x-ratelimit-limit-requests')).toBe('1000')
  })
})

describe('what goes up and what comes down', () => {
  // Goal: an upstream gets its own key and the fields of its kind, never the client's key, headers or other fields; the
  // latter are named.
  test('upward', async () => {
    const headers = { 'x-private': 'secret', cookie: 'a=b', 'openai-organization': 'org' }
    const answer = await gateway.chat({ seed: 7, vendor_field: { deep: [1] }, 'x y': 1, top_k: 5 }, { headers })
    expect(answer.headers.get('x-strongroom-ignored')).toBe('vendor_field, ?, top_k')
    const [seen] = upstream.seen
    expect(seen?.headers.get('authorization')).toBe('Bearer upstream-key-canary')
    expect(JSON.stringify([seen?.body, ...(seen?.headers ?? [])])).not.toContain(KEY)
    expect([...(seen?.headers.keys() ?? [])].sort()).toEqual([
      'accept',
      'accept-encoding',
      'authorization',
      'content-length',
      'content-type',
      'host',
      'user-agent',
    ])
    expect(seen?.body).toEqual(chatBody({ seed: 7 }))
  })

  // Goal: responses are valid by OpenAI's schema, and have no fields and no ids of the engine.
  test('downward', async () => {
    const chat = await gateway.chat()
    const text = await chat.text()
    expect(openAiFaults('CreateChatCompletionResponse', JSON.parse(text))).toEqual([])
    expect(JSON.parse(text)).toMatchObject({ model: MODEL, usage: USAGE, choices: [{ message: { refusal: null } }] })
    expect(JSON.parse(text).choices[0].message.reasoning_content).toBe('engine thoughts')
    const rest = text.replace('engine thoughts', '')
    expect(rest + JSON.stringify([...chat.headers])).not.toContain('engine')
    const completion = await (await gateway.post('/v1/completions', { model: MODEL, prompt: 'Hi' })).json()
    expect(openAiFaults('CreateCompletionResponse', completion)).toEqual([])
    const streamed = await (await gateway.post('/v1/completions', { model: MODEL, prompt: 'Hi', stream: true })).text()
    const events = eventsOf(streamed)
    expect(events.at(-1)).toBe('[DONE]')
    const texts = events.slice(0, -1).map(event => JSON.parse(event).choices[0].text)
    expect(texts.join('')).toBe('Grüße 👋 you')
  })

  // Goal: a table maps upstream statuses: an invalid request stays a 400, an upstream at its limit is a 429, all others
  // a 502.
  test('upstream statuses', async () => {
    const rows = { 400: 400, 413: 400, 422: 400, 401: 502, 403: 502, 404: 502, 429: 429, 500: 502, 503: 502, 204: 502 }
    await using gateway = await startGateway([target(upstream.url)], { limits: { ejectFailures: 1000 } })
    for (const [theirs, ours] of Object.entries(rows)) {
      upstream.behave = response => sendJson(response, Number(theirs), { error: { code: 1, message: 'leaky' } })
      const answer = await gateway.chat()
      expect([theirs, answer.status]).toEqual([theirs, ours])
      expect(await answer.text()).not.toContain('leaky')
    }
  })
})

const SCHEMA = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
} as const
const strict = (schema: unknown) => ({ type: 'json_schema', json_schema: { name: 'place', strict: true, schema } })
const saying =
  (content: string, finish = 'stop') =>
  (response: Parameters<typeof sendJson>[0], { body }: { body: Record<string, unknown> }) => {
    const message = { role: 'assistant', content }
    if (body.stream !== true) {
      return sendJson(response, 200, { choices: [{ index: 0, message, finish_reason: finish }], usage: USAGE })
    }
    openSse(response)
    response.end(`${sse(delta({ content }))}${sse(delta({}, finish))}data: [DONE]\n\n`)
  }

describe('response_format', () => {
  // Goal: with response_format content is JSON valid by the schema, streamed or not; a completion cut by its length
  // passes.
  test('by table', async () => {
    const rows: [format: unknown, content: string, finish: string, ok: boolean][] = [
      [{ type: 'text' }, 'free', 'stop', true],
      [{ type: 'json_object' }, '{"a":1}', 'stop', true],
      [{ type: 'json_object' }, '[1]', 'stop', false],
      [{ type: 'json_object' }, 'prose', 'stop', false],
      [{ type: 'json_object' }, '{"a":', 'length', true],
      [strict(SCHEMA), '{"city":"Oslo"}', 'stop', true],
      [strict(SCHEMA), '{"city":5}', 'stop', false],
      [strict(SCHEMA), '{"city":"Oslo","more":1}', 'stop', false],
      [strict(SCHEMA), 'prose', 'stop', false],
    ]
    await using gateway = await startGateway([target(upstream.url)], { limits: { ejectFailures: 1000 } })
    for (const [format, content, finish, ok] of rows) {
      upstream.behave = saying(content, finish)
      const whole = await gateway.chat({ response_format: format })
      expect([content, whole.status]).toEqual([content, ok ? 200 : 502])
      const streamed = await (await gateway.chat({ response_format: format, stream: true })).text()
      expect([content, streamed.includes('[DONE]')]).toEqual([content, ok])
    }
  })

  // Goal: an invalid schema, or one that costs too much to check, is a 400, and no upstream is asked.
  test('bad schemas', async () => {
    const doubling = Object.fromEntries(
      Array.from({ length: 40 }, (_, at) => [
        `d${at}`,
        { allOf: [{ $ref: `#/$defs/d${at + 1}` }, { $ref: `#/$defs/d${at + 1}` }] },
      ]),
    )
    const bad = [5, [], { type: 'nonsense' }, { $ref: '#/$defs/none' }, { $ref: 'http://127.0.0.1/x' }]
    const busy = [{ pattern: '^(?=a)' }, { pattern: '(.*)\\1' }, { uniqueItems: true }]
    for (const schema of [...bad, ...busy]) {
      const answer = await gateway.chat({ response_format: strict(schema) })
      expect([schema, answer.status]).toEqual([schema, 400])
    }
    expect(upstream.seen).toEqual([])
    upstream.behave = saying('{"city":"Oslo"}')
    const startedMs = performance.now()
    const defs = { ...doubling, d40: true }
    const answer = await gateway.chat({ response_format: strict({ $ref: '#/$defs/d0', $defs: defs }) })
    expect(answer.status).toBe(502)
    // Its job has eight seconds by the clock of a busy machine, and two of a processor.
    expect(performance.now() - startedMs).toBeLessThan(15_000)
    upstream.behave = saying('{"city":"Oslo"}')
    expect(
      (
        await gateway.chat({
          response_format: strict({ ...SCHEMA, properties: { city: { pattern: '^[A-Z][a-z]+$' } } }),
        })
      ).status,
    ).toBe(200)
  })
})

const tool = (name: string) => ({ type: 'function', function: { name, parameters: { type: 'object' } } })

describe('tools', () => {
  // Goal: what the upstream gets for each tool_choice; a completion that does not keep to it is a 502. With auto the
  // client gets a call of a wrong name.
  test('by table', async () => {
    const tools = [tool('first'), tool('second')]
    const named = { type: 'function', function: { name: 'second' } }
    const rows: [choice: unknown, sent: unknown, tools: number | undefined, called: string | null, status: number][] = [
      ['auto', 'auto', 2, null, 200],
      ['auto', 'auto', 2, 'first', 200],
      ['auto', 'auto', 2, 'unknown', 200],
      ['required', 'required', 2, 'unknown', 502],
      ['none', undefined, undefined, null, 200],
      ['none', undefined, undefined, 'first', 502],
      ['required', 'required', 2, 'first', 200],
      ['required', 'required', 2, null, 502],
      [named, 'required', 1, 'second', 200],
      [named, 'required', 1, 'first', 502],
      [named, 'required', 1, null, 502],
    ]
    await using gateway = await startGateway([target(upstream.url)], { limits: { ejectFailures: 1000 } })
    for (const [choice, sent, count, called, status] of rows) {
      upstream.behave = response => {
        const calls =
          called === null ? {} : { tool_calls: [{ type: 'function', function: { name: called, arguments: '{}' } }] }
        const message = { role: 'assistant', content: called === null ? 'no' : null, ...calls }
        sendJson(response, 200, { choices: [{ index: 0, message, finish_reason: 'stop' }], usage: USAGE })
      }
      const answer = await gateway.chat({ tools, tool_choice: choice, parallel_tool_calls: true })
      expect([choice, called, answer.status]).toEqual([choice, called, status])
      const seen = upstream.seen.at(-1)?.body
      expect(seen?.tool_choice).toEqual(sent as never)
      expect((seen?.tools as unknown[] | undefined)?.length).toBe(count as never)
      const body: unknown = await answer.json()
      if (status === 200) expect(openAiFaults('CreateChatCompletionResponse', body)).toEqual([])
      if (status === 200 && called !== null) expect(body).toMatchObject({ choices: [{ finish_reason: 'tool_calls' }] })
    }
  })
})

describe('whole answers that misbehave', () => {
  // Goal: each is a 502 without the engine's words and without a charge; the estimate charges a completion without
  // usage.
  test('by table', async () => {
    const good = { index: 0, message: { role: 'assistant', content: 'x' }, finish_reason: 'stop' }
    const bodies: unknown[] = [
      'leaky',
      [],
      { error: { code: 5, message: 'leaky' } },
      { choices: [] },
      { choices: [good, good] },
      { choices: [{ ...good, finish_reason: null }] },
      { choices: [{ ...good, message: { role: 'user', content: 'x' } }] },
      { choices: [{ ...good, message: { content: 5 } }] },
      { choices: [good], usage: { prompt_tokens: 1.5 } },
      { choices: [{ ...good, message: { content: 'x'.repeat(600_000) } }] },
    ]
    await using gateway = await startGateway([target(upstream.url)], { limits: { ejectFailures: 1000 } })
    for (const body of bodies) {
      upstream.behave = response => sendJson(response, 200, body)
      const answer = await gateway.chat()
      expect(answer.status).toBe(502)
      expect(await answer.text()).not.toContain('leaky')
      expect((await gateway.records()).at(-1)).toMatchObject({
        outcome: 'failed',
        tokens: { prompt: 0, completion: 0 },
      })
    }
    upstream.behave = response => sendJson(response, 200, { choices: [good] })
    expect((await gateway.chat()).status).toBe(200)
    const tokens = (await gateway.records()).at(-1)?.tokens
    expect(tokens?.prompt).toBe(Math.ceil(JSON.stringify(chatBody()).length / 4))
    expect(tokens?.completion).toBeGreaterThan(0)
    upstream.behave = wellBehaved
  })
})
