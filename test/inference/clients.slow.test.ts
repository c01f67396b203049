// The clients that people use: OpenAI's own, the AI SDK and LangChain, unchanged, against the gateway.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { HumanMessage } from '@langchain/core/messages'
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai'
import { embedMany, generateText, jsonSchema, streamText, type ToolSet } from 'ai'
import OpenAI from 'openai'
import { EMBEDDING_MODEL, embeddingsUpstream, vectorOf } from '../../scripts/rigs/gateway/embeddings-upstream.ts'
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
  openai = new OpenAI({ apiKey: KEY, baseURL: `${gateway.url}/v1` })
})

afterEach(async () => {
  await gateway[Symbol.asyncDispose]()
  await upstream.stop()
})

const TEXT = 'Grüße 👋 you'
const messages = [{ role: 'user' as const, content: 'Hello' }]
const weather = {
  type: 'function' as const,
  function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
}
const clock = { type: 'function' as const, function: { name: 'clock', parameters: { type: 'object', properties: {} } } }
const place = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
} as const

describe('openai', () => {
  // Goal: models, chat and text completions come as the client's own types.
  test('models, chat, completions', async () => {
    expect((await openai.models.list()).data.map(model => model.id)).toEqual([...gateway.models])
    const chat = await openai.chat.completions.create({ model: MODEL, messages })
    expect(chat.choices[0]?.message.content).toBe(TEXT)
    expect(chat.usage?.total_tokens).toBe(14)
    expect((await openai.completions.create({ model: MODEL, prompt: 'Hi' })).choices[0]?.text).toBe(TEXT)
  })

  // Goal: a stream gives the text, with usage when it was asked for and only then.
  test('stream', async () => {
    for (const asks of [false, true]) {
      const options = asks ? { stream_options: { include_usage: true } } : {}
      const stream = await openai.chat.completions.create({ model: MODEL, messages, stream: true, ...options })
      let text = ''
      let total: number | undefined
      for await (const chunk of stream) {
        text += chunk.choices[0]?.delta.content ?? ''
        total = chunk.usage?.total_tokens ?? total
      }
      expect([text, total]).toEqual([TEXT, asks ? 14 : undefined])
    }
  })

  // Goal: each tool choice does what it says although the engine does not know named ones, streamed or not.
  test('tools', async () => {
    const rows = [
      ['auto', undefined],
      ['none', undefined],
      ['required', 'weather'],
      [{ type: 'function', function: { name: 'clock' } }, 'clock'],
    ] as const
    for (const [choice, called] of rows) {
      const request = { model: MODEL, messages, tools: [weather, clock], tool_choice: choice }
      const whole = await openai.chat.completions.create(request)
      const call = whole.choices[0]?.message.tool_calls?.[0]
      expect(call?.type === 'function' ? call.function.name : undefined).toBe(called)
      const final = await openai.chat.completions.stream(request).finalChatCompletion()
      const streamed = final.choices[0]?.message.tool_calls?.[0]
      expect(streamed?.type === 'function' ? streamed.function.name : undefined).toBe(called)
    }
  })

  // Goal: a strict schema is parsed by the client.
  test('json_schema', async () => {
    const answer = await openai.chat.completions.parse({
      model: MODEL,
      messages,
      response_format: { type: 'json_schema', json_schema: { name: 'place', strict: true, schema: place } },
    })
    expect(JSON.parse(answer.choices[0]?.message.content ?? '')).toEqual({ city: 'Oslo' })
  })

  // Goal: embeddings come as numbers in both encodings, one for each input.
  test('embeddings', async () => {
    upstream.behave = embeddingsUpstream()
    const embeds = { models: [EMBEDDING_MODEL], embeddingModels: [EMBEDDING_MODEL] }
    await using gateway = await startGateway([target(upstream.url, embeds)])
    const client = new OpenAI({ apiKey: KEY, baseURL: `${gateway.url}/v1` })
    const request = { model: EMBEDDING_MODEL, input: ['a', 'b'] }
    for (const encoding of [{}, { encoding_format: 'float' }] as const) {
      const { data } = await client.embeddings.create({ ...request, ...encoding })
      expect(data.map(({ embedding }) => [...embedding].map(Math.fround))).toEqual([vectorOf(0), vectorOf(1)])
    }
    const provider = createOpenAICompatible({ name: 'strongroom', apiKey: KEY, baseURL: `${gateway.url}/v1` })
    const { embeddings } = await embedMany({ model: provider.embeddingModel(EMBEDDING_MODEL), values: request.input })
    expect(embeddings.map(vector => vector.map(Math.fround))).toEqual([vectorOf(0), vectorOf(1)])
    const langchain = new OpenAIEmbeddings({
      model: EMBEDDING_MODEL,
      apiKey: KEY,
      configuration: { baseURL: `${gateway.url}/v1` },
    })
    expect((await langchain.embedDocuments(request.input)).map(vector => vector.map(Math.fround))).toEqual([
      vectorOf(0),
      vectorOf(1),
    ])
  })

  // Goal: every error is the client's own type with our code, and only what may help is tried again.
  test('errors', async () => {
    const caught = (promise: PromiseLike<unknown>): Promise<unknown> =>
      Promise.resolve(promise).then(
        () => null,
        error => error,
      )
    const stranger = new OpenAI({ apiKey: 'sk-wrong', baseURL: `${gateway.url}/v1` })
    expect(await caught(stranger.models.list())).toBeInstanceOf(OpenAI.AuthenticationError)
    const unknown = await caught(openai.chat.completions.create({ model: 'nope', messages }))
    expect(unknown).toBeInstanceOf(OpenAI.NotFoundError)
    expect(unknown).toMatchObject({ status: 404, code: 'not_found' })
    expect(await caught(openai.chat.completions.create({ model: MODEL, messages: [] }))).toBeInstanceOf(
      OpenAI.BadRequestError,
    )
    const seen = upstream.seen.length
    upstream.behave = response => sendJson(response, 500, { error: { code: 500 } })
    const broken = await caught(openai.chat.completions.create({ model: MODEL, messages }, { maxRetries: 1 }))
    expect(broken).toBeInstanceOf(OpenAI.InternalServerError)
    expect(broken).toMatchObject({ status: 502, code: 'upstream_failed' })
    expect(upstream.seen.length - seen).toBe(2)
    await using busy = await startGateway([target(upstream.url)], { caller: { requestsPerMinute: 1 } })
    const limited = new OpenAI({ apiKey: KEY, baseURL: `${busy.url}/v1`, maxRetries: 0 })
    await limited.models.list()
    expect(await caught(limited.models.list())).toBeInstanceOf(OpenAI.RateLimitError)
  })

  // Goal: a stream that breaks throws in the client instead of ending as if it were whole.
  test('a broken stream', async () => {
    upstream.behave = response => {
      openSse(response)
      response.write(sse(delta({ content: 'Hi' })))
      setTimeout(() => response.destroy(), 50)
    }
    const stream = await openai.chat.completions.create({ model: MODEL, messages, stream: true })
    const read = async () => {
      for await (const _chunk of stream);
    }
    expect(
      await read().then(
        () => null,
        error => error,
      ),
    ).toBeInstanceOf(OpenAI.APIError)
  })

  // Goal: leaving a stream frees the upstream.
  test('abort', async () => {
    upstream.behave = response => {
      openSse(response)
      response.write(sse(delta({ content: 'Hi' })))
    }
    const stream = await openai.chat.completions.create({ model: MODEL, messages, stream: true })
    for await (const _chunk of stream) break
    await until('the upstream is free', 60_000, () => upstream.active() === 0)
    await until('the request is accounted', 60_000, async () => (await gateway.records())[0]?.outcome === 'aborted')
  })
})

describe('ai', () => {
  const provider = () =>
    createOpenAICompatible({
      name: 'strongroom',
      apiKey: KEY,
      baseURL: `${gateway.url}/v1`,
      includeUsage: true,
      supportsStructuredOutputs: true,
    })

  // Goal: text, whole and streamed with usage.
  test('text', async () => {
    const whole = await generateText({ model: provider()(MODEL), prompt: 'Hello' })
    expect([whole.text, whole.usage.totalTokens]).toEqual([TEXT, 14])
    const streamed = streamText({ model: provider()(MODEL), prompt: 'Hello' })
    let text = ''
    for await (const piece of streamed.textStream) text += piece
    expect([text, (await streamed.usage).totalTokens]).toEqual([TEXT, 14])
  })

  // Goal: tools by each choice.
  test('tools', async () => {
    const inputSchema = jsonSchema<{ city?: string }>({ type: 'object', properties: { city: { type: 'string' } } })
    const tools: ToolSet = { weather: { inputSchema }, clock: { inputSchema } }
    const rows = [
      ['auto', []],
      ['none', []],
      ['required', ['weather']],
      [{ type: 'tool', toolName: 'clock' }, ['clock']],
    ] as const
    for (const [toolChoice, called] of rows) {
      const answer = await generateText({ model: provider()(MODEL), prompt: 'Hello', tools, toolChoice })
      expect(answer.toolCalls.map(call => call.toolName)).toEqual([...called])
    }
  })

  // Goal: an unknown model is an API error with its status.
  test('errors', async () => {
    const error: unknown = await generateText({ model: provider()('nope'), prompt: 'Hello', maxRetries: 0 }).catch(
      item => item,
    )
    expect(error).toMatchObject({ statusCode: 404 })
  })
})

describe('LangChain', () => {
  const model = () =>
    new ChatOpenAI({ model: MODEL, apiKey: KEY, configuration: { baseURL: `${gateway.url}/v1` }, maxRetries: 0 })

  // Goal: whole and streamed text, and bound tools by name.
  test('chat, stream, tools', async () => {
    expect((await model().invoke([new HumanMessage('Hello')])).content).toBe(TEXT)
    let text = ''
    for await (const piece of await model().stream('Hello')) text += piece.content
    expect(text).toBe(TEXT)
    const bound = model().bindTools([weather, clock], { tool_choice: 'clock' })
    expect((await bound.invoke('Hello')).tool_calls?.map(call => call.name)).toEqual(['clock'])
  })

  // Goal: structured output through a strict schema.
  test('structured output', async () => {
    const structured = model().withStructuredOutput(place, { name: 'place', method: 'jsonSchema', strict: true })
    expect(await structured.invoke('Hello')).toEqual({ city: 'Oslo' })
  })
})
