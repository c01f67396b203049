// OpenAI's stock client over the Responses API against the gateway: whole, streamed, tools, structured output, errors.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import OpenAI from 'openai'
import type { ResponseInputItem, ResponseOutputItem } from 'openai/resources/responses/responses'
import { KEY, MODEL, startGateway, type TestGateway, target } from '../../scripts/rigs/gateway/server.ts'
import {
  delta,
  openSse,
  sendJson,
  sse,
  startUpstream,
  type TestUpstream,
} from '../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../scripts/rigs/until.ts'

let upstream: TestUpstream
let gateway: TestGateway
let openai: OpenAI

beforeEach(async () => {
  upstream = await startUpstream()
  gateway = await startGateway([target(upstream.url)], { limits: { ejectFailures: 1000 } })
  openai = new OpenAI({ apiKey: KEY, baseURL: `${gateway.url}/v1`, maxRetries: 0 })
})

afterEach(async () => {
  await gateway[Symbol.asyncDispose]()
  await upstream.stop()
})

const TEXT = 'Grüße 👋 you'
const weather = {
  type: 'function',
  name: 'weather',
  strict: true,
  parameters: { type: 'object', properties: { city: { type: 'string' } } },
} as const
const clock = { type: 'function', name: 'clock', strict: null, parameters: null } as const
const place = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
} as const

function caught(promise: PromiseLike<unknown>): Promise<unknown> {
  return Promise.resolve(promise).then(
    () => null,
    error => error,
  )
}

// Goal: text, whole and streamed, with the usage that is booked; the response says whether it is kept.
test('text', async () => {
  const whole = await openai.responses.create({ model: MODEL, input: 'Hello', metadata: { a: 'b' } })
  expect(await openai.responses.create({ model: MODEL, input: 'Hello', store: false })).toMatchObject({ store: false })
  expect([whole.output_text, whole.status, whole.usage?.total_tokens]).toEqual([TEXT, 'completed', 14])
  expect(whole).toMatchObject({ store: true, metadata: { a: 'b' }, model: MODEL, error: null })
  const reasoning = whole.output.find(item => item.type === 'reasoning')
  expect(reasoning?.content?.map(part => part.text)).toEqual(['engine thoughts'])
  const stream = openai.responses.stream({ model: MODEL, instructions: 'Be brief.', input: 'Hello' })
  const pieces: string[] = []
  stream.on('response.output_text.delta', event => void pieces.push(event.delta))
  const final = await stream.finalResponse()
  expect(pieces).toEqual(['Grüße ', '👋 ', 'you'])
  expect([final.output_text, final.status, final.usage?.total_tokens]).toEqual([TEXT, 'completed', 14])
  expect(upstream.seen.at(-1)?.body.messages).toEqual([
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Hello' },
  ])
})

// Goal: the events of a stream come in the order that OpenAI documents, numbered without a gap.
test('events', async () => {
  const stream = await openai.responses.create({ model: MODEL, input: 'Hello', stream: true })
  const types: string[] = []
  for await (const event of stream) {
    expect(event.sequence_number).toBe(types.length)
    types.push(event.type)
  }
  expect(types).toEqual([
    'response.created',
    'response.in_progress',
    'response.output_item.added',
    'response.content_part.added',
    ...Array(3).fill('response.output_text.delta'),
    'response.output_text.done',
    'response.content_part.done',
    'response.output_item.done',
    'response.completed',
  ])
})

// Goal: each tool choice does what it says, and a whole turn with a call and its output goes up as a chat has it.
test('tools', async () => {
  const rows = [
    ['auto', undefined],
    ['none', undefined],
    ['required', 'weather'],
    [{ type: 'function', name: 'clock' }, 'clock'],
  ] as const
  for (const [tool_choice, called] of rows) {
    const request = { model: MODEL, input: 'Hello', tools: [weather, clock], tool_choice }
    const whole = await openai.responses.create(request)
    const final = await openai.responses.stream(request).finalResponse()
    for (const { output } of [whole, final]) {
      const call = (output as ResponseOutputItem[]).find(item => item.type === 'function_call')
      expect(call?.name).toBe(called)
      if (call !== undefined) expect(JSON.parse(call.arguments)).toEqual({ city: 'Oslo' })
    }
  }
  const asked: ResponseInputItem[] = [{ role: 'user', content: 'call a tool' }]
  const first = await openai.responses.create({ model: MODEL, input: asked, tools: [weather] })
  const call = first.output.find(item => item.type === 'function_call')
  const output = { type: 'function_call_output', call_id: call?.call_id ?? '', output: '4 °C' } as const
  const second = await openai.responses.create({
    model: MODEL,
    input: [...asked, ...first.output, output] as ResponseInputItem[],
    tools: [weather],
  })
  expect(second.output_text).toBe(TEXT)
  expect(upstream.seen.at(-1)?.body.messages).toEqual([
    { role: 'user', content: 'call a tool' },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Oslo"}' } }],
    },
    { role: 'tool', tool_call_id: 'call_1', content: '4 °C' },
  ])
})

// Goal: a strict schema is parsed by the client, whole and streamed.
test('structured output', async () => {
  const text = { format: { type: 'json_schema', name: 'place', strict: true, schema: place } } as const
  const whole = await openai.responses.parse({ model: MODEL, input: 'Hello', text })
  expect(whole.output_parsed).toEqual({ city: 'Oslo' })
  const final = await openai.responses.stream({ model: MODEL, input: 'Hello', text }).finalResponse()
  expect(final.output_parsed).toEqual({ city: 'Oslo' })
  expect(upstream.seen.at(-1)?.body.response_format).toEqual({
    type: 'json_schema',
    json_schema: { name: 'place', strict: true, schema: place },
  })
})

// Goal: a response that its length or a filter cut is incomplete, and says why.
test('incomplete', async () => {
  for (const [finish, reason] of [
    ['length', 'max_output_tokens'],
    ['content_filter', 'content_filter'],
  ] as const) {
    upstream.behave = (response, { body }) => {
      const usage = { prompt_tokens: 1, completion_tokens: 1 }
      if (body.stream !== true) {
        const message = { role: 'assistant', content: 'Hi' }
        return sendJson(response, 200, { choices: [{ index: 0, message, finish_reason: finish }], usage })
      }
      openSse(response)
      response.end(`${sse(delta({ content: 'Hi' }))}${sse(delta({}, finish))}data: [DONE]\n\n`)
    }
    const request = { model: MODEL, input: 'Hello', max_output_tokens: 16 }
    const whole = await openai.responses.create(request)
    const streamed = await openai.responses.stream(request).finalResponse()
    for (const { status, incomplete_details, output } of [whole, streamed]) {
      expect([status, incomplete_details?.reason, output.map(item => 'status' in item && item.status)]).toEqual([
        'incomplete',
        reason,
        ['incomplete'],
      ])
    }
    expect(upstream.seen.at(-1)?.body.max_tokens).toBe(16)
  }
})

// Goal: errors are the client's own types, with our code and the client's own field.
test('errors', async () => {
  const error = await caught(openai.responses.create({ model: MODEL, input: 'Hello', previous_response_id: 'resp_1' }))
  expect(error).toBeInstanceOf(OpenAI.NotFoundError)
  expect(error).toMatchObject({ code: 'not_found', param: 'previous_response_id' })
  expect(await caught(openai.responses.create({ model: 'nope', input: 'Hello' }))).toBeInstanceOf(OpenAI.NotFoundError)
  const stranger = new OpenAI({ apiKey: 'sk-wrong', baseURL: `${gateway.url}/v1` })
  expect(await caught(stranger.responses.create({ model: MODEL, input: 'Hi' }))).toBeInstanceOf(
    OpenAI.AuthenticationError,
  )
  upstream.behave = response => sendJson(response, 500, { error: { code: 500 } })
  expect(await caught(openai.responses.create({ model: MODEL, input: 'Hi' }))).toMatchObject({
    status: 502,
    code: 'upstream_failed',
  })
})

// Goal: a stream that breaks says so in an event, and then throws in the client.
test('a broken stream', async () => {
  upstream.behave = response => {
    openSse(response)
    response.write(sse(delta({ content: 'Hi' })))
    setTimeout(() => response.destroy(), 50)
  }
  const types: string[] = []
  const read = async () => {
    for await (const event of await openai.responses.create({ model: MODEL, input: 'Hello', stream: true })) {
      types.push(event.type)
      if (event.type === 'response.failed')
        expect(event.response.error?.message).toContain('closed the connection early')
    }
  }
  const error = await caught(read())
  expect(error).toBeInstanceOf(OpenAI.APIError)
  expect(error).toMatchObject({ code: 'upstream_failed' })
  expect(types.at(-1)).toBe('response.failed')
  const final = await caught(openai.responses.stream({ model: MODEL, input: 'Hello' }).finalResponse())
  expect(final).toBeInstanceOf(OpenAI.OpenAIError)
})

// Goal: leaving a stream frees the upstream, and the request is accounted.
test('abort', async () => {
  upstream.behave = response => {
    openSse(response)
    response.write(sse(delta({ content: 'Hi' })))
  }
  const stream = await openai.responses.create({ model: MODEL, input: 'Hello', stream: true })
  for await (const _event of stream) break
  await until('the upstream is free', 60_000, () => upstream.active() === 0)
  await until('the request is accounted', 60_000, async () => (await gateway.records())[0]?.outcome === 'aborted')
})
