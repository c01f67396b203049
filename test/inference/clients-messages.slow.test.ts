// Anthropic's own client, unchanged, against the gateway: whole, streamed, tools, errors.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import Anthropic from '@anthropic-ai/sdk'
import { KEY, MODEL, startGateway, type TestGateway, target } from '../../scripts/rigs/gateway/server.ts'
import {
  delta,
  openSse,
  sendJson,
  sse,
  startUpstream,
  type TestUpstream,
  USAGE,
} from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'

let upstream: TestUpstream
let gateway: TestGateway
let anthropic: Anthropic

beforeEach(async () => {
  upstream = await startUpstream()
  gateway = await startGateway([target(upstream.url)], { limits: { ejectFailures: 1000 } })
  anthropic = new Anthropic({ apiKey: KEY, baseURL: gateway.url, maxRetries: 0 })
})

afterEach(async () => {
  await gateway[Symbol.asyncDispose]()
  await upstream.stop()
})

const TEXT = 'Grüße 👋 you'
const base = { model: MODEL, max_tokens: 100, messages: [{ role: 'user' as const, content: 'Hello' }] }
const weather: Anthropic.Tool = {
  name: 'weather',
  description: 'd',
  input_schema: { type: 'object', properties: { city: { type: 'string' } } },
}
const clock: Anthropic.Tool = { name: 'clock', input_schema: { type: 'object' } }

function caught(promise: PromiseLike<unknown>): Promise<unknown> {
  return Promise.resolve(promise).then(
    () => null,
    error => error,
  )
}

// Goal: text, whole and streamed, with the usage that is booked; the key goes in either header.
test('text', async () => {
  const bearer = new Anthropic({ apiKey: null, authToken: KEY, baseURL: gateway.url, maxRetries: 0 })
  for (const client of [anthropic, bearer]) {
    const whole = await client.messages.create({
      ...base,
      system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
      metadata: { user_id: 'u' },
      stop_sequences: ['END'],
    })
    expect(whole).toMatchObject({ type: 'message', role: 'assistant', model: MODEL, stop_reason: 'end_turn' })
    expect(whole.content).toMatchObject([
      { type: 'thinking', thinking: 'engine thoughts' },
      { type: 'text', text: TEXT },
    ])
    expect([whole.usage.input_tokens, whole.usage.output_tokens]).toEqual([11, 3])
  }
  expect(upstream.seen.at(-1)?.body).toEqual({
    model: MODEL,
    max_tokens: 100,
    stop: ['END'],
    messages: [{ role: 'system', content: 'Be brief.' }, ...base.messages],
  })
  const stream = anthropic.messages.stream(base)
  const pieces: string[] = []
  stream.on('text', piece => void pieces.push(piece))
  const final = await stream.finalMessage()
  expect(pieces).toEqual(['Grüße ', '👋 ', 'you'])
  expect(final.content).toMatchObject([{ type: 'text', text: TEXT }])
  expect([final.stop_reason, final.usage.input_tokens, final.usage.output_tokens]).toEqual(['end_turn', 11, 3])
})

// Goal: the events of a stream come in the documented order, block after block.
test('events', async () => {
  const types: string[] = []
  for await (const event of await anthropic.messages.create({ ...base, stream: true })) types.push(event.type)
  expect(types).toEqual([
    'message_start',
    'content_block_start',
    ...Array(3).fill('content_block_delta'),
    'content_block_stop',
    'message_delta',
    'message_stop',
  ])
})

// Goal: each tool choice works, whole and streamed, and a turn with a call and its result goes up as a chat.
test('tools', async () => {
  const rows = [
    [{ type: 'auto' }, undefined],
    [{ type: 'none' }, undefined],
    [{ type: 'any', disable_parallel_tool_use: true }, 'weather'],
    [{ type: 'tool', name: 'clock' }, 'clock'],
  ] as const
  for (const [tool_choice, called] of rows) {
    const request = { ...base, tools: [weather, clock], tool_choice }
    const whole = await anthropic.messages.create(request)
    const final = await anthropic.messages.stream(request).finalMessage()
    for (const { content, stop_reason } of [whole, final]) {
      const use = content.find(block => block.type === 'tool_use')
      expect([use?.name, stop_reason]).toEqual([called, called === undefined ? 'end_turn' : 'tool_use'])
      if (use !== undefined) expect(use.input).toEqual({ city: 'Oslo' })
    }
  }
  const asked: Anthropic.MessageParam[] = [{ role: 'user', content: 'call a tool' }]
  const { content } = await anthropic.messages.create({ ...base, messages: asked, tools: [weather] })
  const use = content.find(block => block.type === 'tool_use')
  const second = await anthropic.messages.create({
    ...base,
    messages: [
      ...asked,
      { role: 'assistant', content },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: use?.id ?? '', content: [{ type: 'text', text: '4 °C' }] },
          { type: 'text', text: 'And?' },
        ],
      },
    ],
    tools: [weather],
  })
  expect(second.content).toMatchObject([{ type: 'thinking' }, { type: 'text', text: TEXT }])
  expect(upstream.seen.at(-1)?.body.messages).toEqual([
    { role: 'user', content: 'call a tool' },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Oslo"}' } }],
    },
    { role: 'tool', tool_call_id: 'call_1', content: '4 °C' },
    { role: 'user', content: 'And?' },
  ])
})

/** The upstream sends `message` whole, or in one piece of a stream. */
function answerWith(message: object, finish: string): void {
  upstream.behave = (response, { body }) => {
    const said = { role: 'assistant', content: 'Hi', ...message }
    if (body.stream !== true) {
      return sendJson(response, 200, { choices: [{ index: 0, message: said, finish_reason: finish }], usage: USAGE })
    }
    openSse(response)
    response.end(`${sse(delta({ content: 'Hi', ...message }))}${sse(delta({}, finish))}data: [DONE]\n\n`)
  }
}

const brokenCall = { index: 0, id: 'c', type: 'function', function: { name: 'weather', arguments: '{"city"' } }

// Goal: a message says why it ended; a call that its length cut is none that anybody could make.
test('stop reasons', async () => {
  const rows = [
    ['length', {}, 'max_tokens'],
    ['content_filter', {}, 'refusal'],
    ['stop', { refusal: 'no' }, 'refusal'],
    ['length', { tool_calls: [brokenCall] }, 'max_tokens'],
  ] as const
  for (const [finish, more, reason] of rows) {
    answerWith(more, finish)
    const request = { ...base, tools: [weather] }
    const whole = await anthropic.messages.create(request)
    expect([whole.stop_reason, whole.content.some(block => block.type === 'tool_use')]).toEqual([reason, false])
    if ('tool_calls' in more) continue
    expect((await anthropic.messages.stream(request).finalMessage()).stop_reason).toBe(reason)
  }
})

// Goal: arguments that are no JSON object reach the client, which reports them to the model. The gateway refuses them
// for a strict tool, and charges that: the model did not keep to the request.
test('broken arguments', async () => {
  answerWith({ tool_calls: [brokenCall] }, 'tool_calls')
  const message = await anthropic.messages.create({ ...base, tools: [weather] })
  expect(message.stop_reason).toBe('tool_use')
  expect(message.content.at(-1)).toMatchObject({ type: 'tool_use', input: { unparsed_arguments: '{"city"' } })
  const request = { ...base, tools: [{ ...weather, strict: true }] }
  expect(await caught(anthropic.messages.create(request))).toMatchObject({ status: 502 })
  expect((await gateway.records()).at(-1)?.tokens).toEqual({ prompt: 11, completion: 3 })
  expect(await caught(anthropic.messages.stream(request).finalMessage())).toBeInstanceOf(Anthropic.APIError)
})

// Goal: errors are the client's own types, with our code and the client's own field.
test('errors', async () => {
  const error = await caught(anthropic.messages.create({ ...base, max_tokens: 0 }))
  expect(error).toBeInstanceOf(Anthropic.BadRequestError)
  expect(error).toMatchObject({
    error: { type: 'error', error: { type: 'invalid_request_error', code: 'invalid_request', param: 'max_tokens' } },
  })
  expect(await caught(anthropic.messages.create({ ...base, model: 'nope' }))).toBeInstanceOf(Anthropic.NotFoundError)
  const stranger = new Anthropic({ apiKey: 'sk-wrong', baseURL: gateway.url, maxRetries: 0 })
  const refused = await caught(stranger.messages.create(base))
  expect(refused).toBeInstanceOf(Anthropic.AuthenticationError)
  expect(refused).toMatchObject({ error: { error: { type: 'authentication_error', code: 'unauthenticated' } } })
  upstream.behave = response => sendJson(response, 500, { error: { code: 500 } })
  expect(await caught(anthropic.messages.create(base))).toMatchObject({
    status: 502,
    error: { error: { type: 'api_error', code: 'upstream_failed' } },
  })
})

// Goal: a stream that breaks throws in the client instead of ending as if it were whole.
test('a broken stream', async () => {
  upstream.behave = response => {
    openSse(response)
    response.write(sse(delta({ content: 'Hi' })))
    setTimeout(() => response.destroy(), 50)
  }
  const error = await caught(anthropic.messages.stream(base).finalMessage())
  expect(error).toBeInstanceOf(Anthropic.APIError)
  expect(error).toMatchObject({ error: { error: { type: 'api_error', code: 'upstream_failed' } } })
})

// Goal: leaving a stream frees the upstream, and the request is accounted.
test('abort', async () => {
  upstream.behave = response => {
    openSse(response)
    response.write(sse(delta({ content: 'Hi' })))
  }
  for await (const _event of await anthropic.messages.create({ ...base, stream: true })) break
  await until('the upstream is free', 60_000, () => upstream.active() === 0)
  await until('the request is accounted', 60_000, async () => (await gateway.records())[0]?.outcome === 'aborted')
})
