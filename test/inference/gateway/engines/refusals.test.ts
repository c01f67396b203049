// An engine that refuses or fails: the client gets a sentence and a code of ours, the log a reason without the prompt.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { MODEL, startGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import {
  delta,
  openSse,
  sendJson,
  sse,
  startUpstream,
  type TestUpstream,
} from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../../scripts/rigs/until.ts'

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

const prompt = 'My password is Zanzibar; nobody else may read it'

async function ask(path: string, body: object) {
  const gateway = undo.use(await startGateway([target(upstream.url)]))
  const answer = await gateway.post(path, { model: MODEL, ...body })
  const { error } = (await answer.json()) as { error: { message: string } }
  return { answer, message: error.message, log: (await gateway.log()).join('\n') }
}

const messages = [{ role: 'user', content: prompt }]
const apis = [
  ['/v1/chat/completions', { messages }],
  ['/v1/responses', { input: prompt }],
  ['/v1/messages', { messages, max_tokens: 5 }],
] as const

// Goal: no engine ejects itself, and no agent asks again, because of messages that a template does not take.
test.each([...apis])('a template in %s', async (path, body) => {
  upstream.behave = response => sendJson(response, 500, { error: { code: 500, message: `Jinja Exception: ${prompt}` } })
  const { answer, message, log } = await ask(path, body)
  expect([answer.status, upstream.seen.length]).toEqual([400, 1])
  expect(message).toStartWith("The model's chat template failed on these messages.")
  expect(log).toContain('"reason":"chat_template","fixedBy":"operator","status":500')
  expect(log).not.toMatch(/Zanzibar|password|nobody/)
})

// Goal: an engine that echoes the whole prompt: neither the client's error nor the log has any of it.
test.each([...apis])('an echo in %s', async (path, body) => {
  upstream.behave = (response, { body: sent }) =>
    sendJson(response, 400, { object: 'error', message: `Unprocessable entity: ${JSON.stringify(sent)} ${prompt}` })
  const { answer, message, log } = await ask(path, body)
  expect([answer.status, message]).toEqual([
    400,
    'The model rejected this request; compare its fields with the documentation.',
  ])
  expect(log).toContain('"reason":"unknown"')
  expect(log).not.toMatch(/Zanzibar|password|nobody/)
})

// Goal: a model that is loading is asked again later, by the client's own clock.
test('a model that is loading', async () => {
  upstream.behave = response =>
    sendJson(response, 503, { error: { code: 503, message: 'Loading model', type: 'unavailable_error' } })
  const { answer, message } = await ask('/v1/chat/completions', { messages })
  expect([answer.status, answer.headers.get('retry-after'), answer.headers.get('x-should-retry'), message]).toEqual([
    429,
    '10',
    'true',
    'The model is still loading. Retry in 10 s.',
  ])
})

// Goal: SGLang begins the stream before it refuses the request.
test('a stream that begins with a refusal', async () => {
  upstream.behave = response => {
    openSse(response)
    response.end(sse({ error: { message: `The input is longer than the model's context length. ${prompt}` } }))
  }
  const { answer, message, log } = await ask('/v1/chat/completions', { messages, stream: true })
  expect([answer.status, message]).toEqual([
    400,
    "The prompt plus max_tokens exceeds the model's context. Shorten the prompt or lower max_tokens.",
  ])
  expect(log).toContain('"reason":"context_too_long"')
  expect(log).not.toMatch(/Zanzibar|password|nobody/)
})

// Goal: an engine whose context is full within an answer ends the stream with the code, and the log has the reason.
test('a stream that ends with a refusal', async () => {
  const begun = Promise.withResolvers<void>()
  upstream.behave = async response => {
    openSse(response)
    response.write(sse(delta({ role: 'assistant', content: 'So' })))
    await begun.promise
    const message = `Context size has been exceeded. ${prompt}`
    response.end(sse({ error: { code: 500, message, type: 'server_error' } }))
  }
  const gateway = undo.use(await startGateway([target(upstream.url)]))
  const answer = await gateway.post('/v1/chat/completions', { model: MODEL, messages, stream: true })
  begun.resolve()
  const text = await answer.text()
  expect([answer.status, text.includes('"code":"context_length_exceeded"')]).toEqual([200, true])
  await until('the request is accounted', 60_000, async () => (await gateway.records()).length === 1)
  const log = (await gateway.log()).join('\n')
  expect(log).toContain('"message":"stream failed"')
  expect(log).toContain('"reason":"context_too_long"')
  expect(text + log).not.toMatch(/Zanzibar|password|nobody/)
})

// Goal: memory that ran out is the upstream's failure, which a client may try again.
test('an engine without memory', async () => {
  upstream.behave = response => sendJson(response, 500, { error: { message: 'CUDA out of memory' } })
  const { answer, message } = await ask('/v1/chat/completions', { messages })
  expect([answer.status, answer.headers.get('x-should-retry'), message]).toEqual([
    502,
    'true',
    'The engine of this model is out of memory; try again later, or send a shorter prompt.',
  ])
})
