// An engine that is silent before its first event, or within a stream, for as long as a long prompt takes it.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { postEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import { chatBody, startHostGateway, type TestGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import {
  type Behaviour,
  delta,
  openSse,
  sendJson,
  sse,
  startUpstream,
  type TestUpstream,
  USAGE,
  wellBehaved,
} from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { splitResponse } from '../../../../src/attest/receipt/response-read.ts'
import { verifyResponse } from '../../../../src/attest/receipt/response-verify.ts'
import { fromUtf8, utf8 } from '../../../../src/base/bytes.ts'
import { type Clock, systemClock } from '../../../../src/base/clock.ts'
import { TEST_SHAPES } from '../../../rigs/dialects/apis.ts'
import { upstreamIn } from '../../../rigs/receipt-upstream.ts'

/** Ten seconds of the gateway are a fifth of one here. */
const faster = 50
const fastClock: Clock = {
  nowMs: systemClock.nowMs,
  monotonicMs: () => systemClock.monotonicMs() * faster,
  sleep: (ms, signal) => systemClock.sleep(ms / faster, signal),
}
/** Its seconds are minutes here, so that what must come before a time does so on a busy machine, too. */
const slowClock: Clock = {
  nowMs: systemClock.nowMs,
  monotonicMs: () => systemClock.monotonicMs() / 60,
  sleep: (ms, signal) => systemClock.sleep(ms * 60, signal),
}
/** Nothing ends for any time but the one that a test is about. */
const never = 3_600_000 * faster
const limits = {
  bodyTimeoutMs: never,
  connectTimeoutMs: never,
  firstByteTimeoutMs: 0,
  idleTimeoutMs: never,
  stallTimeoutMs: never,
  queueTimeoutMs: never,
}

let upstream: TestUpstream
let gateway: TestGateway
let stack: AsyncDisposableStack
beforeEach(async () => {
  stack = new AsyncDisposableStack()
  upstream = await startUpstream()
  stack.defer(upstream.stop)
  gateway = open([upstream])
})
afterEach(() => stack.disposeAsync())

type Fallbacks = { fallbacks?: { model: string; fallback: string }[] }

function open(upstreams: readonly TestUpstream[], more: Fallbacks = {}, clock = fastClock) {
  const targets = upstreams.map(({ url }) => target(url))
  return stack.use(startHostGateway(targets, { limits: { ...limits, ...more }, host: { clock } }))
}

/** Answers after `release`. */
function held(then: Behaviour = wellBehaved): Behaviour & { release: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>()
  const behave: Behaviour = async (response, seen, gone) => {
    await promise
    await then(response, seen, gone)
  }
  return Object.assign(behave, { release: resolve })
}

/** The text of a stream so far, and all of it at its end. */
function reading(pieces: AsyncIterable<Uint8Array | string>) {
  let text = ''
  const decoder = new TextDecoder()
  const ended = (async () => {
    for await (const piece of pieces)
      text += typeof piece === 'string' ? piece : decoder.decode(piece, { stream: true })
    return text
  })()
  return { soFar: () => text, ended }
}

function bodyOf({ body }: Response): AsyncIterable<Uint8Array> {
  if (body === null) throw new Error('no body')
  return body as unknown as AsyncIterable<Uint8Array>
}

const PINGS = {
  chat: /^: ping$/gm,
  responses: /^: ping$/gm,
  messages: /^event: ping\ndata: \{"type":"ping"\}$/gm,
} as const
const SHAPES = { chat: { path: '/v1/chat/completions', body: chatBody }, ...TEST_SHAPES }

describe.each(['chat', 'responses', 'messages'] as const)('%s', api => {
  const { path, body } = SHAPES[api]
  const countOf = (text: string) => text.match(PINGS[api])?.length ?? 0

  test('goal: head and pings come while the engine reads the prompt, and then the same stream as without', async () => {
    const plain = await (await gateway.post(path, body({ stream: true }))).text()
    const behave = held()
    upstream.behave = behave
    const response = await gateway.post(path, body({ stream: true }))
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/event-stream'])
    expect(response.headers.get('x-request-id')).not.toBeNull()
    const { soFar, ended } = reading(bodyOf(response))
    await until('three pings', 60_000, () => countOf(soFar()) >= 3)
    expect(upstream.active()).toBe(1)
    behave.release()
    const text = await ended
    const kinds = (stream: string) =>
      stream
        .replaceAll(PINGS[api], '')
        .split(/\n+/)
        .filter(line => line !== '' && line !== 'data: [DONE]')
        .map(line => (line.startsWith('data: ') ? (JSON.parse(line.slice(6)).type ?? 'chunk') : line))
    expect(kinds(text)).toEqual(kinds(plain))
    expect(text.slice(-30)).toBe(plain.slice(-30))
    const records = await gateway.records()
    const tokens = { prompt: USAGE.prompt_tokens, completion: USAGE.completion_tokens }
    expect(records.map(record => [record.outcome, record.tokens])).toEqual([
      ['completed', tokens],
      ['completed', tokens],
    ])
  })

  // Goal: clients see that the stream lives while the engine holds a tool call back.
  test('pings come within a stream, too', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    upstream.behave = async response => {
      openSse(response)
      response.write(sse(delta({ role: 'assistant', content: 'Hi' })))
      await promise
      response.end(`${sse(delta({ content: ' there' }))}${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
    }
    const { soFar, ended } = reading(bodyOf(await gateway.post(path, body({ stream: true }))))
    await until('two pings after the first text', 60_000, () => countOf(soFar().slice(soFar().indexOf('Hi'))) >= 2)
    resolve()
    const text = await ended
    expect(text.indexOf(' there')).toBeGreaterThan(text.search(PINGS[api]))
    expect((await gateway.records()).map(({ outcome }) => outcome)).toEqual(['completed'])
  })

  // Goal: the agent still gets the code that it acts on, and nothing is charged.
  test('an upstream that refuses after the head: the error is an event with its code, and nothing is charged', async () => {
    const behave = held(response =>
      sendJson(response, 400, {
        error: { message: 'maximum context length is 9 tokens', code: 'context_length_exceeded' },
      }),
    )
    upstream.behave = behave
    const response = await gateway.post(path, body({ stream: true }))
    behave.release()
    const text = await response.text()
    expect(response.status).toBe(200)
    expect(text).toContain('context_length_exceeded')
    expect(text).not.toContain('[DONE]')
    expect((await gateway.records()).map(({ outcome, tokens }) => [outcome, tokens])).toEqual([
      ['failed', { prompt: 0, completion: 0 }],
    ])
  })

  // Goal: the early head takes no status from requests that are refused at once.
  test('a refusal before the head has its status', async () => {
    upstream.behave = response => sendJson(response, 400, { error: { message: 'maximum context length is 9 tokens' } })
    const patient = open([upstream], {}, slowClock)
    expect((await patient.post(path, body({ stream: true }))).status).toBe(400)
  })

  // Goal: the failure of one engine stays unseen; ids and sequence numbers go on.
  test('another upstream answers after the head, in the same stream', async () => {
    const second = await startUpstream()
    stack.defer(second.stop)
    const cut = held(response => void response.destroy())
    const asked: TestUpstream[] = []
    for (const each of [upstream, second]) {
      each.behave = (...given) => {
        asked.push(each)
        return asked.length === 1 ? cut(...given) : wellBehaved(...given)
      }
    }
    const both = open([upstream, second])
    const { soFar, ended } = reading(bodyOf(await both.post(path, body({ stream: true }))))
    await until('the head, and what comes with it', 60_000, () => soFar() !== '')
    cut.release()
    const text = await ended
    expect(new Set(asked).size).toBe(2)
    expect(text).toContain('you')
    expect(text).not.toContain('upstream_failed')
    if (api === 'responses') {
      const numbers = [...text.matchAll(/"sequence_number":(\d+)/g)].map(found => Number(found[1]))
      expect(numbers).toEqual(numbers.map((_number, at) => at))
    }
  })

  // Goal: every byte between gateway and client is covered, those of pings too.
  test('a receipt covers pings as well', async () => {
    const behave = held()
    upstream.behave = behave
    const response = await gateway.post(path, body({ stream: true }), { headers: { 'x-strongroom-receipt': '1' } })
    const { soFar, ended } = reading(bodyOf(response))
    await until('two pings', 60_000, () => countOf(soFar()) >= 2)
    behave.release()
    const { body: answered, receipt } = splitResponse(utf8(await ended))
    const question = { keys: await gateway.publicKeys(), outside: [upstreamIn(receipt ?? '')] } as const
    const request = utf8(JSON.stringify(body({ stream: true })))
    const verdictOn = async (bytes: Uint8Array) =>
      (await verifyResponse(receipt ?? '', { ...question, response: bytes, request })).ok
    expect(await verdictOn(answered)).toBe(true)
    expect(await verdictOn(utf8(fromUtf8(answered).replace(PINGS[api], ': pong')))).toBe(false)
  })

  // Goal: the engine stops at once, and the prompt is paid.
  test('a client that leaves meanwhile frees the upstream, and pays for the prompt', async () => {
    upstream.behave = () => {}
    const leave = new AbortController()
    const response = await gateway.post(path, body({ stream: true }), { signal: leave.signal })
    expect(response.status).toBe(200)
    leave.abort()
    await until('the upstream is free', 60_000, () => upstream.active() === 0)
    await until('the request is accounted', 60_000, async () => (await gateway.records()).length === 1)
    const [record] = await gateway.records()
    expect(record).toMatchObject({ outcome: 'aborted', tokens: { completion: 0 } })
    expect(record?.tokens.prompt).toBeGreaterThan(0)
  })

  // Goal: encryption changes nothing of it.
  test('an encrypted stream has its pings', async () => {
    const behave = held()
    upstream.behave = behave
    const { response, pieces } = await postEncrypted(gateway, path, body({ stream: true }))
    expect(response.status).toBe(200)
    const { soFar, ended } = reading(pieces())
    await until('two pings', 60_000, () => countOf(soFar()) >= 2)
    behave.release()
    expect(await ended).toContain('you')
  })
})

test('goal: a prompt that takes the engine 310 seconds succeeds with the default limits', async () => {
  upstream.behave = async (response, seen, gone) => {
    await fastClock.sleep(310_000)
    await wellBehaved(response, seen, gone)
  }
  const [stream, whole] = await Promise.all([gateway.chat({ stream: true }), gateway.chat()])
  const text = await stream.text()
  expect(text.match(PINGS.chat)?.length).toBeGreaterThanOrEqual(25)
  expect(text).toEndWith('data: [DONE]\n\n')
  expect([whole.status, ((await whole.json()) as { usage: { total_tokens: number } }).usage.total_tokens]).toEqual([
    200,
    USAGE.total_tokens,
  ])
}, 120_000)

// Goal: a hung engine can be bounded.
test("an operator's own limit holds after the head", async () => {
  upstream.behave = () => {}
  const impatient = stack.use(
    startHostGateway([target(upstream.url)], {
      limits: { ...limits, firstByteTimeoutMs: 30_000 },
      host: { clock: fastClock },
    }),
  )
  const text = await (await impatient.chat({ stream: true })).text()
  expect(text).toContain('upstream_failed')
  expect((await impatient.chat()).status).toBe(502)
})

// Goal: the client has the first model's name already.
test('no other model goes on with a stream whose head is out', async () => {
  const small = await startUpstream()
  stack.defer(small.stop)
  const cut = held(response => void response.destroy())
  upstream.behave = cut
  const upstreams = [target(upstream.url, { models: ['large'] }), target(small.url, { models: ['small'] })]
  const fallbacks = [{ model: 'large', fallback: 'small' }]
  const either = stack.use(
    startHostGateway(upstreams, { limits: { ...limits, fallbacks }, host: { clock: fastClock } }),
  )
  const { soFar, ended } = reading(bodyOf(await either.chat({ model: 'large', stream: true })))
  await until('the head', 60_000, () => soFar() !== '')
  cut.release()
  expect(await ended).toContain('upstream_failed')
  expect(small.seen).toEqual([])
})
