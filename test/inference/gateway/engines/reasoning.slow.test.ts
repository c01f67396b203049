// Reasoning of an answer in all three APIs, whole and streamed, and back to the engine with the next request.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { MODEL, startGateway, type TestGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { sendJson, startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import type { Engine } from '../../../../src/config/upstream/kinds.ts'

type Json = Record<string, unknown>

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

const THOUGHTS = 'They ask for \\"x\\".\nSo: call f.'
const args = '{"a":1}'
const tool = { name: 'f', parameters: { type: 'object' } }

/** An engine that thinks, then calls a tool. `field`: a field of its family with the thoughts. */
function thinkIn(field: Json): void {
  const call = { id: 'c1', type: 'function', function: { name: 'f', arguments: args } }
  const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 }
  upstream.behave = (response, { body }) => {
    const end = { index: 0, finish_reason: 'tool_calls' }
    if (body.stream !== true) {
      const message = { role: 'assistant', content: null, ...field, tool_calls: [call] }
      sendJson(response, 200, { choices: [{ ...end, message }], usage })
      return
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const chunks = [
      { choices: [{ index: 0, delta: { role: 'assistant', ...field } }] },
      { choices: [{ index: 0, delta: { tool_calls: [{ index: 0, ...call }] } }] },
      { choices: [{ ...end, delta: {} }] },
      { choices: [], usage },
    ]
    response.end(`${chunks.map(chunk => `data: ${JSON.stringify(chunk)}\n\n`).join('')}data: [DONE]\n\n`)
  }
}

async function jsonEvents(response: Response): Promise<Json[]> {
  const lines = (await response.text()).split('\n').filter(line => line.startsWith('data: {'))
  return lines.map(line => JSON.parse(line.slice('data: '.length)))
}

const question = { role: 'user', content: 'Hi' }
const rules = (content: string) => (content === '' ? [] : [{ role: 'system', content }])
const result = { role: 'tool', tool_call_id: 'c1', content: 'done' }

/** Requests of a client of each API: the first one, and the next one with the answer. Long rules make a large body. */
const APIS = {
  chat: {
    path: '/v1/chat/completions',
    first: { messages: [question], tools: [{ type: 'function', function: tool }] },
    read: async (response: Response, isStream: boolean): Promise<Json> => {
      if (!isStream) return ((await response.json()) as { choices: [{ message: Json }] }).choices[0].message
      const deltas = (await jsonEvents(response)).flatMap(({ choices }) =>
        (choices as { delta: Json }[]).map(({ delta }) => delta),
      )
      const calls = deltas.flatMap(({ tool_calls: pieces }) => (Array.isArray(pieces) ? pieces : []))
      const of = (name: string) => deltas.map(delta => delta[name] ?? '').join('')
      const fields = ['reasoning_content', 'reasoning'].filter(name => of(name) !== '')
      return {
        role: 'assistant',
        content: null,
        ...Object.fromEntries(fields.map(name => [name, of(name)])),
        tool_calls: calls.map(({ index, ...call }) => call),
      }
    },
    thoughts: (message: Json) => message.reasoning_content ?? message.reasoning ?? null,
    second: (message: Json, filler: string) => ({ messages: [...rules(filler), question, message, result] }),
  },
  responses: {
    path: '/v1/responses',
    first: { input: 'Hi', tools: [{ type: 'function', ...tool }], include: ['reasoning.encrypted_content'] },
    read: async (response: Response, isStream: boolean): Promise<Json> => {
      if (!isStream) return (await response.json()) as Json
      const events = await jsonEvents(response)
      return events.find(({ type }) => type === 'response.completed')?.response as Json
    },
    thoughts: ({ output }: Json) =>
      (output as { type: string; content: { text: string }[] }[]).find(({ type }) => type === 'reasoning')?.content[0]
        ?.text ?? null,
    // As Codex does: without `content`.
    second: ({ output }: Json, filler: string) => ({
      input: [
        ...rules(filler),
        question,
        ...(output as Json[]).map(({ content, ...item }) => (item.type === 'reasoning' ? item : { ...item, content })),
        { type: 'function_call_output', call_id: 'c1', output: 'done' },
      ],
    }),
  },
  messages: {
    path: '/v1/messages',
    first: { messages: [question], max_tokens: 50, tools: [{ name: 'f', input_schema: tool.parameters }] },
    read: async (response: Response, isStream: boolean): Promise<Json> => {
      if (!isStream) return (await response.json()) as Json
      const blocks: Json[] = []
      for (const { type, content_block, delta } of (await jsonEvents(response)) as Record<string, Json>[]) {
        if (String(type) === 'content_block_start') blocks.push({ ...content_block })
        const last = blocks.at(-1)
        if (delta === undefined || last === undefined) continue
        if (delta.type === 'thinking_delta') last.thinking = `${last.thinking}${delta.thinking}`
        if (delta.type === 'signature_delta') last.signature = delta.signature
        if (delta.type === 'input_json_delta') last.input = JSON.parse(String(delta.partial_json))
      }
      return { content: blocks }
    },
    thoughts: ({ content }: Json) => {
      const block = (content as Json[]).find(({ type }) => type === 'thinking')
      // The AI SDK replays only thinking that has a signature.
      return block?.signature === 'unsigned' ? block.thinking : null
    },
    second: ({ content }: Json, filler: string) => ({
      ...(filler === '' ? {} : { system: filler }),
      messages: [
        question,
        { role: 'assistant', content },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c1', content: 'done' }] },
      ],
      max_tokens: 50,
    }),
  },
} as const

const FAMILIES: Json[] = [
  { reasoning_content: THOUGHTS },
  { reasoning: THOUGHTS },
  { reasoning_content: THOUGHTS, reasoning: THOUGHTS },
  { reasoning_details: [{ type: 'reasoning.text', text: THOUGHTS, format: 'x', index: 0 }] },
  { content: [{ type: 'thinking', thinking: [{ type: 'text', text: THOUGHTS }] }] },
]

/** Fields with the thoughts that each engine gets back. */
const REPLAYED: Record<Exclude<Engine, 'openai' | 'text-embeddings-inference'>, Json> = {
  vllm: { reasoning_content: THOUGHTS, reasoning: THOUGHTS },
  sglang: { reasoning_content: THOUGHTS },
  'llama-server': { reasoning_content: THOUGHTS },
}

async function turn(gateway: TestGateway, api: keyof typeof APIS, isStream: boolean, filler: string) {
  const { path, first, read, thoughts, second } = APIS[api]
  const asked = await gateway.post(path, { model: MODEL, ...first, stream: isStream })
  expect([api, asked.status]).toEqual([api, 200])
  const answer = await read(asked, isStream)
  const next = { model: MODEL, ...first, ...second(answer, filler) }
  const replayed = await gateway.post(path, next)
  expect([api, replayed.status]).toEqual([api, 200])
  const messages = upstream.seen.at(-1)?.body.messages as Json[]
  return {
    thoughts: thoughts(answer),
    message: messages.find(({ role }) => role === 'assistant'),
    ignored: replayed.headers.get('x-strongroom-ignored'),
  }
}

const call = { id: 'c1', type: 'function', function: { name: 'f', arguments: args } }

// Goal: what an engine thinks arrives in every API, and goes back in the field that the engine's template reads.
test.each(Object.keys(REPLAYED) as (keyof typeof REPLAYED)[])('%s', async engine => {
  const gateway = undo.use(
    await startGateway([target(upstream.url, { engine })], { limits: { bodyBytesMax: 8_388_608 } }),
  )
  for (const family of FAMILIES) {
    thinkIn(family)
    for (const api of ['chat', 'responses', 'messages'] as const) {
      for (const isStream of [false, true]) {
        const { thoughts, message } = await turn(gateway, api, isStream, isStream ? 'y'.repeat(200_000) : '')
        const where = [engine, api, isStream, family]
        expect([...where, thoughts]).toEqual([...where, THOUGHTS])
        expect<Json>({ refusal: null, ...message }).toEqual({
          role: 'assistant',
          content: null,
          refusal: null,
          ...REPLAYED[engine],
          tool_calls: [call],
        })
      }
    }
  }
})

// Goal: a server of an unknown kind, which may refuse such fields, gets what a client of chats wrote, and no
// translation of it. The header names the reasoning, and a gateway that refuses unknown fields takes the request.
test('openai', async () => {
  const gateway = undo.use(await startGateway([target(upstream.url)], { limits: { refusesUnknownFields: true } }))
  thinkIn({ reasoning: THOUGHTS })
  const [chat, responses, messages] = [
    await turn(gateway, 'chat', false, ''),
    await turn(gateway, 'responses', false, ''),
    await turn(gateway, 'messages', false, ''),
  ]
  expect([chat.message?.reasoning, chat.message?.reasoning_content, chat.ignored]).toEqual([THOUGHTS, undefined, null])
  for (const { message, ignored } of [responses, messages]) {
    expect(message).toEqual({ role: 'assistant', content: null, tool_calls: [call] })
    expect(ignored).toBe('messages.reasoning')
  }
})

// Goal: reasoning in a large body, whose long values are cut out, arrives whole.
test('long reasoning', async () => {
  const gateway = undo.use(
    await startGateway([target(upstream.url, { engine: 'vllm' })], { limits: { bodyBytesMax: 8_388_608 } }),
  )
  const long = 'thought '.repeat(40_000)
  const said = [
    { role: 'assistant', content: 'a', reasoning: long },
    { role: 'user', content: 'next' },
    { role: 'assistant', content: 'b'.repeat(5_000), reasoning_content: 'short' },
  ]
  await gateway.post('/v1/chat/completions', { model: MODEL, messages: [question, ...said, question] })
  expect(upstream.seen.at(-1)?.body.messages).toEqual([
    question,
    { role: 'assistant', content: 'a', reasoning_content: long, reasoning: long },
    { role: 'user', content: 'next' },
    { role: 'assistant', content: 'b'.repeat(5_000), reasoning_content: 'short', reasoning: 'short' },
    question,
  ])
})

// Goal: llama-server gets no reasoning with content and calls, over which the template of gpt-oss raises an error.
test('content, reasoning and calls', async () => {
  const said = { role: 'assistant', content: 'I call f.', reasoning_content: 'why', tool_calls: [call] }
  const replay = { model: MODEL, messages: [question, said, result] }
  const sent = async (engine: Engine) => {
    const gateway = undo.use(await startGateway([target(upstream.url, { engine })]))
    const response = await gateway.post('/v1/chat/completions', replay)
    const [, message] = (upstream.seen.at(-1)?.body.messages ?? []) as Json[]
    return [message, response.headers.get('x-strongroom-ignored')]
  }
  expect(await sent('llama-server')).toEqual([
    { role: 'assistant', content: 'I call f.', tool_calls: [call] },
    'messages.reasoning',
  ])
  expect(await sent('sglang')).toEqual([said, null])
})

// Goal: reasoning that only another server can read is named; a summary of it stays, and nothing is made of none.
test('foreign reasoning', async () => {
  const gateway = undo.use(await startGateway([target(upstream.url, { engine: 'sglang' })]))
  const reply = { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'a' }] }
  const asked = async (item: Json) => {
    const input = [question, { type: 'reasoning', id: 'rs_1', ...item }, reply, question]
    const response = await gateway.post('/v1/responses', { model: MODEL, input })
    const [, message] = (upstream.seen.at(-1)?.body.messages ?? []) as Json[]
    return [response.status, message?.reasoning_content, response.headers.get('x-strongroom-ignored')]
  }
  expect(await asked({ summary: [] })).toEqual([200, undefined, null])
  expect(await asked({ summary: [], encrypted_content: 'gAAAA' })).toEqual([200, undefined, 'input.reasoning'])
  const summary = [{ type: 'summary_text', text: 'Short.' }]
  expect(await asked({ summary, encrypted_content: 'gAAAA' })).toEqual([200, 'Short.', null])
  const redacted = {
    role: 'assistant',
    content: [
      { type: 'redacted_thinking', data: 'x' },
      { type: 'text', text: 'a' },
    ],
  }
  const response = await gateway.post('/v1/messages', {
    model: MODEL,
    max_tokens: 5,
    messages: [question, redacted, question],
  })
  expect([response.status, response.headers.get('x-strongroom-ignored')]).toEqual([200, 'messages.redacted_thinking'])
})

// Goal: reasoning without an answer behind it, as of a turn that was cut off, makes no message of its own.
test('orphans', async () => {
  const gateway = undo.use(await startGateway([target(upstream.url, { engine: 'sglang' })]))
  const thoughts = { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: 'lost' }] }
  await gateway.post('/v1/responses', { model: MODEL, input: [question, thoughts, { ...question, content: 'Again' }] })
  expect(JSON.stringify(upstream.seen.at(-1)?.body.messages)).not.toContain('lost')
})
