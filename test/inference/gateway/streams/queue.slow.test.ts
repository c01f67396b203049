// Requests that wait: in the gateway's queue, and in the engine's own.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { postEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import { chatBody, KEY, MODEL, startHostGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import {
  sendJson,
  startUpstream,
  type TestUpstream,
  wellBehaved,
} from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { splitResponse } from '../../../../src/attest/receipt/response-read.ts'
import { verifyResponse } from '../../../../src/attest/receipt/response-verify.ts'
import { fromUtf8, utf8 } from '../../../../src/base/bytes.ts'
import { type Clock, systemClock } from '../../../../src/base/clock.ts'
import type { GatewayLimits } from '../../../../src/inference/gateway/gateway.ts'
import { TEST_SHAPES } from '../../../rigs/dialects/apis.ts'
import { startRelayedGateway } from '../../../rigs/gateway/relayed-gateway.ts'
import { upstreamIn } from '../../../rigs/receipt-upstream.ts'

/** A clock on which `faster` seconds pass in one. */
function clockOf(faster: number): Clock {
  return {
    nowMs: systemClock.nowMs,
    monotonicMs: () => systemClock.monotonicMs() * faster,
    sleep: (ms, signal) => systemClock.sleep(ms / faster, signal),
  }
}

const never = 3_600_000
const fasterByDefault = 50
/** In the gateway's queue: 20 seconds of its clock. */
const waitMs = 400
const limits = {
  bodyTimeoutMs: never,
  connectTimeoutMs: never,
  firstByteTimeoutMs: 0,
  idleTimeoutMs: never,
  stallTimeoutMs: never,
  queueTimeoutMs: never,
}
const SHAPES = { chat: { path: '/v1/chat/completions', body: chatBody }, ...TEST_SHAPES }
const places = (text: string) => [...text.matchAll(/^: queue (.*)$/gm)].map(found => found[1])

let upstream: TestUpstream
let stack: AsyncDisposableStack
beforeEach(async () => {
  stack = new AsyncDisposableStack()
  upstream = await startUpstream()
  stack.defer(upstream.stop)
})
afterEach(() => stack.disposeAsync())

type More = Partial<GatewayLimits> & { readonly faster?: number }

function open(
  { faster = fasterByDefault, ...more }: More = {},
  given: Parameters<typeof target>[1] = { concurrencyMax: 1 },
) {
  const options = { limits: { ...limits, ...more }, host: { clock: clockOf(faster) } }
  return stack.use(startHostGateway([target(upstream.url, given)], options))
}

/** Waits until so many requests stand in the gateway's own queue. */
const queued = (host: ReturnType<typeof open>, count: number) =>
  until('the requests are queued', 60_000, () => host.gateway.view().waiting === count)

/** The engine's only place is taken until `release`. */
async function occupied(gateway: { readonly chat: () => Promise<Response> }) {
  const { promise, resolve } = Promise.withResolvers<void>()
  upstream.behave = async (response, seen, gone) => {
    await promise
    await wellBehaved(response, seen, gone)
  }
  const first = gateway.chat()
  await until('the place is taken', 60_000, () => upstream.active() === 1)
  return async (then = wellBehaved) => {
    upstream.behave = then
    resolve()
    expect((await first).status).toBe(200)
  }
}

function reading(pieces: AsyncIterable<Uint8Array | string>) {
  let text = ''
  const decoder = new TextDecoder()
  const ended = (async () => {
    for await (const piece of pieces) {
      text += typeof piece === 'string' ? piece : decoder.decode(piece, { stream: true })
    }
    return text
  })()
  return { soFar: () => text, ended }
}

describe.each(['chat', 'responses', 'messages'] as const)('%s', api => {
  const { path, body } = SHAPES[api]
  const asked = body({ stream: true, logit_bias_of_mine: 1 })

  // Goal: after ten seconds in the queue the head names the place, and pings repeat it; the receipt covers every byte.
  test('a stream that waits for an upstream', async () => {
    const gateway = open()
    const release = await occupied(gateway)
    const response = await gateway.post(path, asked, { headers: { 'x-strongroom-receipt': '1' } })
    expect(response.status).toBe(200)
    expect(response.headers.get('x-strongroom-queue')).toMatch(/^position=1, wait=\d+$/)
    expect(response.headers.get('x-strongroom-ignored')).toBe('logit_bias_of_mine')
    expect(upstream.seen.length).toBe(1)
    const { soFar, ended } = reading(response.body as unknown as AsyncIterable<Uint8Array>)
    await until('two places', 60_000, () => places(soFar()).length >= 2)
    await release()
    const { body: answered, receipt } = splitResponse(utf8(await ended))
    expect(places(fromUtf8(answered)).every(place => /^position=1, wait=\d+$/.test(place ?? ''))).toBe(true)
    expect(fromUtf8(answered)).toContain('you')
    const question = { keys: await gateway.publicKeys(), outside: [upstreamIn(receipt ?? '')] } as const
    const request = utf8(JSON.stringify(asked))
    const verdictOn = async (bytes: Uint8Array) =>
      (await verifyResponse(receipt ?? '', { ...question, response: bytes, request })).ok
    expect(await verdictOn(answered)).toBe(true)
    expect(await verdictOn(utf8(fromUtf8(answered).replace('position=1', 'position=2')))).toBe(false)
  })

  test('goal: upstreams of two engines ignore different fields, so that the head names none', async () => {
    const targets = (['vllm', 'openai'] as const).map(engine =>
      target(upstream.url, { name: engine, engine, concurrencyMax: 1 }),
    )
    const gateway = stack.use(startHostGateway(targets, { limits, host: { clock: clockOf(50) } }))
    const go = Promise.withResolvers<void>()
    upstream.behave = async (response, seen, gone) => {
      await go.promise
      await wellBehaved(response, seen, gone)
    }
    const first = [gateway.chat(), gateway.chat()]
    await until('both places are taken', 60_000, () => upstream.active() === 2)
    const response = await gateway.post(path, asked)
    expect(response.headers.get('x-strongroom-queue')).toMatch(/^position=1, wait=\d+$/)
    expect(response.headers.get('x-strongroom-ignored')).toBeNull()
    go.resolve()
    expect(await response.text()).toContain('you')
    for (const { status } of await Promise.all(first)) expect(status).toBe(200)
  })

  test('goal: an encrypted stream has the same', async () => {
    const gateway = open()
    const release = await occupied(gateway)
    const { response, pieces } = await postEncrypted(gateway, path, asked)
    expect(response.headers.get('x-strongroom-queue')).toMatch(/^position=1, wait=\d+$/)
    const { soFar, ended } = reading(pieces())
    await until('a place', 60_000, () => places(soFar()).length >= 1)
    await release()
    expect(await ended).toContain('you')
  })
})

// Goal: processes that serve clients ask the one that decides, on a clock of real time.
test('a gateway of several processes', async () => {
  const settings = { firstByteTimeoutMs: 0 }
  await using gateway = await startRelayedGateway([target(upstream.url, { concurrencyMax: 1 })], { settings })
  const release = await occupied(gateway)
  const response = await gateway.chat({ stream: true })
  expect(response.headers.get('x-strongroom-queue')).toMatch(/^position=1, wait=\d+$/)
  const { soFar, ended } = reading(response.body as unknown as AsyncIterable<Uint8Array>)
  await until('the first ping', 60_000, () => soFar() !== '')
  await release()
  expect(await ended).toEndWith('data: [DONE]\n\n')
})

// Goal: a client that leaves the queue after the head takes no place, and pays nothing.
test('a client that leaves', async () => {
  const gateway = open()
  const release = await occupied(gateway)
  const leave = new AbortController()
  const response = await gateway.chat({ stream: true }, { signal: leave.signal })
  expect(response.headers.get('x-strongroom-queue')).toMatch(/^position=1/)
  expect(gateway.gateway.view().waiting).toBe(1)
  leave.abort()
  await until('it has left the queue', 60_000, () => gateway.gateway.view().waiting === 0)
  await release()
  expect((await gateway.chat()).status).toBe(200)
  expect(upstream.seen.length).toBe(2)
  expect((await gateway.records()).map(({ outcome }) => outcome)).toEqual(['completed', 'completed'])
})

// Goal: an error that comes after the head is an event with its code, and says where the request was.
test('a queue whose time ends after the head', async () => {
  const gateway = open({ queueTimeoutMs: 25_000 })
  const release = await occupied(gateway)
  const response = await gateway.chat({ stream: true })
  expect(response.status).toBe(200)
  const text = await response.text()
  expect(text).toContain('"code":"rate_limited"')
  expect(text).toMatch(/No engine was free within 25000 ms\. The request was at position 1\. Retry in \d+ s\./)
  expect(text).not.toContain('[DONE]')
  await release()
})

// Goal: the comments change nothing for stock clients.
test('clients of OpenAI and Anthropic', async () => {
  const gateway = open()
  const heads: (string | null)[] = []
  const noting = async (input: string | URL | Request, init?: RequestInit) => {
    const response = await fetch(input, init)
    heads.push(response.headers.get('x-strongroom-queue'))
    return response
  }
  const openai = new OpenAI({ apiKey: KEY, baseURL: `${gateway.url}/v1`, maxRetries: 0, fetch: noting })
  const anthropic = new Anthropic({ apiKey: KEY, baseURL: gateway.url, maxRetries: 0, fetch: noting })
  const messages = [{ role: 'user' as const, content: 'Hello' }]
  const askers: (() => Promise<string>)[] = [
    async () => {
      let text = ''
      const stream = await openai.chat.completions.create({ model: MODEL, messages, stream: true })
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ''
      return text
    },
    async () => {
      let text = ''
      const stream = await openai.responses.create({ model: MODEL, input: 'Hello', stream: true })
      for await (const event of stream) text += event.type === 'response.output_text.delta' ? event.delta : ''
      return text
    },
    async () => {
      const stream = anthropic.messages.stream({ model: MODEL, max_tokens: 99, messages })
      return await stream.finalText()
    },
  ]
  for (const ask of askers) {
    const release = await occupied(gateway)
    const answer = ask()
    const count = heads.length + 1
    await until('the head has left before the answer', 60_000, () => heads.length === count)
    expect(heads.at(-1)).toContain('position=1')
    await release()
    expect(await answer).toBe('Grüße 👋 you')
  }
})

// Goal: until a client could take the silence for a failure, a request that no upstream takes keeps its status, and
// says where it was.
test('a queue with the default time limit', async () => {
  const gateway = open({ queueTimeoutMs: 10_000 })
  const release = await occupied(gateway)
  const response = await gateway.chat({ stream: true })
  expect([response.status, response.headers.get('x-strongroom-queue')]).toEqual([429, null])
  const seconds = response.headers.get('retry-after')
  const { error } = (await response.json()) as { error: { message: string } }
  expect(error.message).toBe(
    `No engine was free within 10000 ms. The request was at position 1. Retry in ${seconds} s.`,
  )
  await release()
})

// Goal: another model may answer, so the client gets no head with the first model's name.
test('a model with a fallback', async () => {
  const second = await startUpstream()
  stack.defer(second.stop)
  const upstreams = [
    target(upstream.url, { models: [MODEL], concurrencyMax: 1 }),
    target(second.url, { models: ['small'] }),
  ]
  const fallbacks = [{ model: MODEL, fallback: 'small' }]
  const gateway = stack.use(
    startHostGateway(upstreams, {
      limits: { ...limits, queueTimeoutMs: 20_000, fallbacks },
      host: { clock: clockOf(50) },
    }),
  )
  const release = await occupied(gateway)
  const response = await gateway.chat({ stream: true })
  expect([response.status, response.headers.get('x-strongroom-queue')]).toEqual([200, null])
  expect(await response.text()).toContain('"model":"small"')
  await release()
})

// Goal: a client of a whole response learns how long it waited.
test('a whole response after the queue', async () => {
  const gateway = open({}, { concurrencyMax: 1, models: [MODEL, 'vectors'], embeddingModels: ['vectors'] })
  const release = await occupied(gateway)
  const startedMs = performance.now()
  const waiting = [gateway.chat(), gateway.post('/v1/embeddings', { model: 'vectors', input: 'a' })]
  await queued(gateway, 2)
  const queuedMs = performance.now()
  await systemClock.sleep(waitMs)
  const leastSeconds = ((performance.now() - queuedMs) * fasterByDefault) / 1_000
  upstream.behave = (response, seen) => {
    if (seen.path.endsWith('/chat/completions')) return wellBehaved(response, seen, Promise.resolve())
    sendJson(response, 200, { data: [{ index: 0, embedding: [1] }], usage: { prompt_tokens: 1, total_tokens: 1 } })
  }
  await release(upstream.behave)
  const responses = await Promise.all(waiting)
  const mostSeconds = ((performance.now() - startedMs) * fasterByDefault) / 1_000
  for (const response of responses) {
    expect(response.status).toBe(200)
    const [, waited = ''] = /^waited=(\d+)$/.exec(response.headers.get('x-strongroom-queue') ?? '') ?? []
    expect(Number(waited)).toBeGreaterThanOrEqual(leastSeconds)
    // The next step above is at most twice the time.
    expect(Number(waited)).toBeLessThanOrEqual(2 * mostSeconds)
  }
  expect((await gateway.chat()).headers.get('x-strongroom-queue')).toBeNull()
})

// Goal: the client learns the length of the engine's own queue, with an estimate; its text never reaches a client.
test.each([
  ['vllm:num_requests_waiting{engine="0"} 4', /^position=5, wait=5$/],
  ['vllm:num_requests_waiting{engine="0"} 0', null],
  ['vllm:num_requests_waiting{engine="0"} 4\r\nx-strongroom-receipt: 1', /^position=5, wait=5$/],
  ['vllm:num_requests_waiting{engine="0"} 4, wait=0', null],
])('an engine that reports %j', async (metrics, expected) => {
  const gateway = open({ faster: 0.5 }, { engine: 'vllm' })
  upstream.metrics = `${metrics}\n`
  const { promise, resolve } = Promise.withResolvers<void>()
  upstream.behave = async (response, seen, gone) => {
    await promise
    await wellBehaved(response, seen, gone)
  }
  const response = await gateway.chat({ stream: true })
  const told = response.headers.get('x-strongroom-queue')
  if (expected === null) expect(told).toBeNull()
  else expect(told).toMatch(expected)
  expect(response.headers.get('x-strongroom-receipt')).toBeNull()
  resolve()
  expect(await response.text()).toEndWith('data: [DONE]\n\n')
})
