// Answers of real engines over HTTP, in all APIs, plain and encrypted; and mistakes of models, which agents report to
// them.

import { expect, test } from 'bun:test'
import { postEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import {
  chatBody,
  eachWithGateway,
  MODEL,
  startGateway,
  type TestGateway,
  target,
} from '../../../../scripts/rigs/gateway/server.ts'
import {
  type Behaviour,
  chunk,
  delta,
  openSse,
  sendJson,
  sse,
  type TestUpstream,
} from '../../../../scripts/rigs/gateway/upstream-server.ts'

type Json = Record<string, unknown>

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})

type Tool = { readonly name: string; readonly strict?: true }

const schema = { type: 'object', properties: {} }
const APIS = {
  chat: {
    path: '/v1/chat/completions',
    body: (tools: readonly Tool[]) =>
      chatBody(
        tools.length === 0
          ? {}
          : { tools: tools.map(tool => ({ type: 'function', function: { ...tool, parameters: schema } })) },
      ),
    end: 'data: [DONE]\n\n',
  },
  responses: {
    path: '/v1/responses',
    body: (tools: readonly Tool[]) => ({
      model: MODEL,
      input: 'Hello',
      tools: tools.map(tool => ({ type: 'function', ...tool, parameters: schema })),
    }),
    end: 'data: [DONE]\n\n',
  },
  messages: {
    path: '/v1/messages',
    body: (tools: readonly Tool[]) => ({
      ...chatBody(),
      max_tokens: 100,
      tools: tools.map(tool => ({ ...tool, input_schema: schema })),
    }),
    end: 'event: message_stop\ndata: {"type":"message_stop"}\n\n',
  },
} as const

type Api = keyof typeof APIS
const WAYS = (Object.keys(APIS) as Api[]).flatMap(api => [[api, 'plain'] as const, [api, 'encrypted'] as const])

async function post(api: Api, way: 'plain' | 'encrypted', more: Json, tools: readonly Tool[] = []) {
  const { path, body } = APIS[api]
  if (way === 'plain') {
    const response = await gateway.post(path, { ...body(tools), ...more })
    return { status: response.status, retry: response.headers.get('x-should-retry'), text: await response.text() }
  }
  const encrypted = await postEncrypted(gateway, path, { ...body(tools), ...more })
  const { status } = encrypted.response
  return { status, retry: encrypted.headers.get('x-should-retry'), text: await encrypted.text() }
}

const streaming =
  (...events: readonly string[]): Behaviour =>
  response => {
    openSse(response)
    response.end(events.join(''))
  }
const DONE = 'data: [DONE]\n\n'
const x = sse(delta({ content: 'x' }))
const stop = sse(delta({}, 'stop'))
const usage = { prompt_tokens: 12, completion_tokens: 2, total_tokens: 14 }

const STREAMS: Record<string, readonly [events: readonly string[], tokens: Json]> = {
  'empty usage in a chunk': [
    [sse(chunk([{ index: 0, delta: { content: 'x' }, finish_reason: null }], { usage: {} })), stop],
    { completion: 1 },
  ],
  'usage chunk without choices': [
    [x, stop, sse({ id: 'a', object: 'chat.completion.chunk', created: 1, model: 'm', usage })],
    { prompt: 12, completion: 2 },
  ],
  'named ping event': [['event: ping\ndata: {"type":"ping"}\n\n', x, 'event: ping\n\n', stop], { completion: 1 }],
  'finish reason eos': [[x, sse(delta({}, 'eos'))], { completion: 1 }],
}

// Goal: a good answer in an engine's own form is 200 and whole, and is charged once.
test.each(WAYS)('streams of real engines: %s, %s', async (api, way) => {
  for (const [form, [events, tokens]] of Object.entries(STREAMS)) {
    upstream.behave = streaming(...events, DONE)
    const { status, text } = await post(api, way, { stream: true })
    expect([form, status]).toEqual([form, 200])
    expect(text).toMatch(/"(?:content|text|delta)":"x"/)
    expect(text.endsWith(APIS[api].end)).toBe(true)
    expect(text).not.toContain('upstream_failed')
    const record = (await gateway.records()).at(-1)
    expect([form, record?.outcome]).toEqual([form, 'completed'])
    expect(record?.tokens).toMatchObject(tokens)
  }
})

/** Calls of tools as an upstream sends them, whole or in a stream. */
const calling =
  (calls: readonly { readonly name: string; readonly args: string }[]): Behaviour =>
  (response, { body }) => {
    const all = calls.map(({ name, args }, index) => ({
      ...{ index, id: `call_${index}`, type: 'function' },
      function: { name, arguments: args },
    }))
    if (body.stream === true) {
      const events = [...all.map(call => sse(delta({ tool_calls: [call] }))), sse(delta({}, 'tool_calls')), DONE]
      streaming(...events)(response, { body, path: '', headers: new Headers() }, Promise.resolve())
      return
    }
    const message = { role: 'assistant', content: null, tool_calls: all }
    sendJson(response, 200, { choices: [{ index: 0, message, finish_reason: 'tool_calls' }], usage })
  }

const offered = [{ name: 'read' }, { name: 'write' }]

// Goal: a wrong name and broken arguments are answers, whole and streamed: the agent reports the mistake to the model.
test.each(WAYS)("mistakes of a model are the client's: %s, %s", async (api, way) => {
  for (const stream of [false, true]) {
    upstream.behave = calling([{ name: 'Bash', args: '{"a":1}' }])
    const wrong = await post(api, way, { stream }, offered)
    expect([stream, wrong.status]).toEqual([stream, 200])
    expect(wrong.text).toContain('"Bash"')
    expect(wrong.text).not.toContain('upstream_failed')
    upstream.behave = calling([{ name: 'read', args: '{"a": broken' }])
    const broken = await post(api, way, { stream }, offered)
    expect([stream, broken.status]).toEqual([stream, 200])
    expect(broken.text).toContain('{\\"a\\": broken')
    expect(broken.text).not.toContain('upstream_failed')
  }
  const outcomes = (await gateway.records()).map(({ outcome }) => outcome)
  expect(outcomes).toEqual(['completed', 'completed', 'completed', 'completed'])
})

// Goal: the input of a message's call is an object also where the arguments are none.
test('broken arguments in a message', async () => {
  for (const args of ['{"a": broken', '[]', '"text"']) {
    upstream.behave = calling([{ name: 'read', args }])
    const { text } = await post('messages', 'plain', {}, offered)
    expect(JSON.parse(text).content).toEqual([
      { type: 'tool_use', id: 'call_0', name: 'read', input: { unparsed_arguments: args } },
    ])
  }
})

// Goal: a tool whose input is a text gets the arguments as that text, if they are not those of its function.
test('a custom tool', async () => {
  const tools = [{ type: 'custom', name: 'apply_patch' }]
  for (const [args, input] of [
    ['{"input":"a"}', 'a'],
    ['*** Begin Patch', '*** Begin Patch'],
  ] as const) {
    upstream.behave = calling([{ name: 'apply_patch', args }])
    const whole = await post('responses', 'plain', { tools })
    expect(JSON.parse(whole.text).output).toMatchObject([{ type: 'custom_tool_call', name: 'apply_patch', input }])
    const streamed = await post('responses', 'plain', { tools, stream: true })
    expect([streamed.status, streamed.text.includes('response.completed')]).toEqual([200, true])
    expect(streamed.text).toContain(JSON.stringify(input))
  }
})

// Goal: what tool_choice, a strict tool or a strict response_format forbids is a 502 that clients do not repeat.
test.each(WAYS)('what the request forbids: %s, %s', async (api, way) => {
  const required = { chat: 'required', responses: 'required', messages: { type: 'any' } }[api]
  upstream.behave = calling([{ name: 'Bash', args: '{}' }])
  for (const [more, tools] of [
    [{ tool_choice: required }, offered],
    [{}, []],
  ] as const) {
    const wrong = await post(api, way, more, tools)
    expect([wrong.status, wrong.retry]).toEqual([502, 'false'])
    expect(wrong.text).toContain('The answer does not follow tool_choice.')
    // The call is the first event of the stream.
    const streamed = await post(api, way, { ...more, stream: true }, tools)
    expect([streamed.status, streamed.retry]).toEqual([502, 'false'])
  }
  for (const args of ['{"a"', '[]']) {
    upstream.behave = calling([{ name: 'read', args }])
    const strict = await post(api, way, {}, [{ name: 'read', strict: true }])
    expect([strict.status, strict.retry]).toEqual([502, 'false'])
    expect(strict.text).toContain('of a strict tool are not a JSON object')
    const streamed = await post(api, way, { stream: true }, [{ name: 'read', strict: true }])
    expect(streamed.text).toContain('of a strict tool are not a JSON object')
    expect(streamed.text.endsWith(APIS[api].end)).toBe(false)
  }
})

// Goal: with a strict response_format only offered tools may be called instead of an answer.
test('a strict response_format', async () => {
  const format = { type: 'json_schema', json_schema: { name: 'a', strict: true, schema } }
  const statusOf = async (name: string) => {
    upstream.behave = calling([{ name, args: '{}' }])
    return (await post('chat', 'plain', { response_format: format }, offered)).status
  }
  expect([await statusOf('read'), await statusOf('Bash')]).toEqual([200, 502])
})

// Goal: a client does not repeat what the gateway itself refused, but it does repeat a failure of the upstream.
test('x-should-retry', async () => {
  await using patient = await startGateway([target(upstream.url)], { limits: { ejectFailures: 1000 } })
  gateway = patient
  const rows: [behave: Behaviour, retry: string][] = [
    [response => sendJson(response, 200, { choices: [] }), 'false'],
    [response => sendJson(response, 200, []), 'false'],
    [response => void response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'), 'false'],
    [response => sendJson(response, 500, {}), 'true'],
    [response => void response.destroy(), 'true'],
  ]
  for (const [behave, retry] of rows) {
    upstream.behave = behave
    const answer = await post('chat', 'plain', {})
    expect([answer.status, answer.retry]).toEqual([502, retry])
  }
  for (const [events, retry] of [
    [[DONE], 'false'],
    [[sse({ answer: 42 })], 'false'],
    [[sse(delta({}, 'leaky'))], 'false'],
    [[sse({ error: { message: 'leaky' } })], 'true'],
  ] as const) {
    upstream.behave = streaming(...events)
    const answer = await post('chat', 'plain', { stream: true })
    expect([answer.status, answer.retry]).toEqual([502, retry])
  }
  await using impatient = await startGateway([target(upstream.url)], { limits: { firstByteTimeoutMs: 300 } })
  gateway = impatient
  upstream.behave = () => {}
  const late = await post('chat', 'plain', { stream: true })
  expect([late.status, late.retry]).toEqual([502, 'false'])
})
