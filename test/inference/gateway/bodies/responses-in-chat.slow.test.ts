// Bodies of /v1/chat/completions in the form of the Responses API, as Cursor and others send them; answered as chats.

import { describe, expect, test } from 'bun:test'
import { postEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import {
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
  USAGE,
} from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { eventsOf, openAiFaults } from '../../../rigs/gateway/openai-schema.ts'

type Json = Record<string, unknown>

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})

const CHAT = '/v1/chat/completions'
const PATCH = '*** Begin Patch\n*** Add File: a\n+"b"\n*** End Patch'
const parameters = { type: 'object', properties: { path: { type: 'string' } } }
const custom = {
  type: 'custom',
  name: 'ApplyPatch',
  description: 'Edits files.',
  format: { type: 'grammar', syntax: 'lark', definition: 'start: "x"' },
}
/** As the engine gets the custom tool. */
const applyPatch = {
  type: 'function',
  function: {
    name: 'ApplyPatch',
    description: 'Edits files.\n\nThe input has this grammar (lark):\nstart: "x"',
    parameters: {
      type: 'object',
      properties: { input: { type: 'string' } },
      required: ['input'],
      additionalProperties: false,
    },
  },
}
const readFile = { type: 'function', function: { name: 'Read', description: 'Reads.', parameters, strict: false } }

/** Answers with calls of these functions, in small pieces in a stream. */
const calling =
  (calls: readonly (readonly [name: string, args: string])[], finish = 'tool_calls'): Behaviour =>
  (response, { body }) => {
    const made = calls.map(([name, args], at) => ({
      ...{ index: at, id: `call_${at}`, type: 'function' },
      function: { name, arguments: args },
    }))
    if (body.stream !== true) {
      const message = { role: 'assistant', content: null, tool_calls: made }
      return sendJson(response, 200, { choices: [{ index: 0, message, finish_reason: finish }], usage: USAGE })
    }
    openSse(response)
    for (const { index, id, type, function: called } of made) {
      const begun = { index, id, type, function: { name: called.name, arguments: '' } }
      response.write(sse(delta({ tool_calls: [begun] })))
      for (const piece of called.arguments.match(/.{1,7}/gs) ?? []) {
        response.write(sse(delta({ tool_calls: [{ index, function: { arguments: piece } }] })))
      }
    }
    response.write(sse(delta({}, finish)))
    response.write(sse(chunk([], { usage: USAGE })))
    response.end('data: [DONE]\n\n')
  }

const post = async (body: Json) => {
  const answer = await gateway.post(CHAT, body)
  return { status: answer.status, headers: answer.headers, json: (await answer.json()) as Json }
}

/** The message that a client puts together out of a stream, as OpenAI's clients do. */
async function streamed(body: Json) {
  const events = eventsOf(await (await gateway.post(CHAT, { ...body, stream: true })).text())
  expect(events.at(-1)).toBe('[DONE]')
  const chunks = events.slice(0, -1).map(event => JSON.parse(event))
  const calls: { type?: string; custom?: Json; function?: Json }[] = []
  let content = ''
  for (const { choices } of chunks) {
    const given = choices[0]?.delta ?? {}
    content += given.content ?? ''
    for (const { index, custom: text, function: called, ...rest } of given.tool_calls ?? []) {
      calls[index] ??= {}
      const call = Object.assign(calls[index], rest)
      for (const [name, piece] of [['custom', text] as const, ['function', called] as const]) {
        if (piece === undefined) continue
        call[name] ??= {}
        const all = call[name]
        for (const [field, value] of Object.entries(piece)) all[field] = `${all[field] ?? ''}${value}`
      }
    }
  }
  const reason = chunks.map(({ choices }) => choices[0]?.finish_reason).findLast(found => found != null)
  return { content, calls, reason, last: chunks.at(-1) }
}

describe('a body with input', () => {
  // Goal: all that a Cursor agent sends reaches the engine as a chat, and the fields of both APIs count.
  test('as a chat', async () => {
    const { status, json, headers } = await post({
      model: MODEL,
      instructions: 'Be brief.',
      input: [
        { role: 'user', content: [{ type: 'input_text', text: 'Hi' }] },
        { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Yes?', annotations: [] }] },
        { role: 'user', content: 'Patch it' },
        { type: 'function_call', call_id: 'c1', name: 'Read', arguments: '{"path":"a"}' },
        { type: 'function_call_output', call_id: 'c1', output: 'b' },
        { type: 'custom_tool_call', call_id: 'c2', name: 'ApplyPatch', input: PATCH },
        { type: 'custom_tool_call_output', call_id: 'c2', output: 'Done' },
        { type: 'function_call', call_id: 'c3', name: 'ApplyPatch', arguments: PATCH },
        { type: 'function_call_output', call_id: 'c3', output: 'Done' },
      ],
      tools: [{ type: 'function', name: 'Read', description: 'Reads.', parameters, strict: false }, custom],
      tool_choice: 'auto',
      max_output_tokens: 77,
      reasoning: { effort: 'high', summary: 'auto' },
      text: { format: { type: 'json_schema', name: 'n', schema: { type: 'object' } }, verbosity: 'low' },
      stop: ['END'],
      seed: 7,
      store: false,
      include: ['reasoning.encrypted_content'],
      prompt_cache_retention: '24h',
    })
    expect([status, json.object]).toEqual([200, 'chat.completion'])
    const [seen] = upstream.seen
    const input = JSON.stringify({ input: PATCH })
    const call = (id: string, name: string, args: string) => ({
      id,
      type: 'function',
      function: { name, arguments: args },
    })
    expect(seen?.body).toEqual({
      model: MODEL,
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'Hi' },
        { role: 'assistant', content: 'Yes?' },
        { role: 'user', content: 'Patch it' },
        { role: 'assistant', content: null, tool_calls: [call('c1', 'Read', '{"path":"a"}')] },
        { role: 'tool', tool_call_id: 'c1', content: 'b' },
        { role: 'assistant', content: null, tool_calls: [call('c2', 'ApplyPatch', input)] },
        { role: 'tool', tool_call_id: 'c2', content: 'Done' },
        { role: 'assistant', content: null, tool_calls: [call('c3', 'ApplyPatch', input)] },
        { role: 'tool', tool_call_id: 'c3', content: 'Done' },
      ],
      tools: [readFile, applyPatch],
      tool_choice: 'auto',
      max_tokens: 77,
      reasoning_effort: 'high',
      response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { type: 'object' } } },
      stop: ['END'],
      seed: 7,
    })
    expect(headers.get('x-strongroom-ignored')?.split(', ').sort()).toEqual([
      ...['prompt_cache_retention', 'reasoning.summary', 'text.verbosity', 'tools.format'],
    ])
  })

  // Goal: a text alone is enough, whole and as a stream; the stream's usage is asked for as in a chat.
  test('whole and streamed', async () => {
    const { json } = await post({ model: MODEL, input: 'Hi' })
    expect(openAiFaults('CreateChatCompletionResponse', json)).toEqual([])
    expect(json).toMatchObject({ choices: [{ message: { content: 'Grüße 👋 you' } }] })
    const { content, last } = await streamed({ model: MODEL, input: 'Hi', stream_options: { include_usage: true } })
    expect([content, last.choices, last.usage]).toEqual(['Grüße 👋 you', [], USAGE])
    expect((await streamed({ model: MODEL, input: 'Hi' })).last.choices).toHaveLength(1)
  })

  // Goal: the same through the thread for large bodies, and encrypted.
  test('large and encrypted', async () => {
    const limits = { bodyBytesMax: 8 * 1_048_576 }
    await using large = await startGateway([target(upstream.url, { content: ['image'] })], { limits })
    gateway = large
    const image_url = `data:image/png;base64,${'A'.repeat(5 * 1_048_576)}`
    const parts = [
      { type: 'input_text', text: 'x'.repeat(200_000) },
      { type: 'input_image', image_url },
    ]
    upstream.behave = calling([['ApplyPatch', JSON.stringify({ input: PATCH })]])
    for (const body of [
      { model: MODEL, input: [{ role: 'user', content: parts }], tools: [custom] },
      { model: MODEL, messages: [{ role: 'user', content: parts }], tools: [custom] },
    ]) {
      const { status, json } = await post(body)
      expect([status, JSON.stringify(json).includes('"custom":')]).toEqual([200, true])
      const seen = upstream.seen.at(-1)?.body as { messages: { content: { type: string; image_url?: Json }[] }[] }
      const [message] = seen.messages
      expect(message?.content.map(part => part.type)).toEqual(['text', 'image_url'])
      expect(message?.content[1]?.image_url?.url === image_url).toBe(true)
    }
    const sealed = await postEncrypted(gateway, CHAT, { model: MODEL, input: 'Hi', tools: [custom] })
    expect(JSON.parse(await sealed.text()).choices[0].message.tool_calls[0].custom.input).toBe(PATCH)
  })

  // Goal: each refusal names the field of the client's own body, and a way out.
  test.each([
    [{ messages: [{ role: 'user', content: 'x' }], input: 'x' }, 'messages', /^messages and input are both .*send/],
    [{ input: 'x', previous_response_id: 'resp_1' }, 'previous_response_id', /earlier messages.*\/v1\/responses/],
    [
      { messages: [{ role: 'user', content: 'x' }], previous_response_id: 'r' },
      'previous_response_id',
      /earlier messages/,
    ],
    [{ input: 'x', conversation: 'conv_1' }, 'conversation', /earlier messages/],
    [{ input: 'x', background: true }, 'background', /stream/],
    [{ input: 'x', max_output_tokens: 0 }, 'max_output_tokens', /whole number/],
    [{ input: 'x', max_tokens: 0 }, 'max_tokens', /whole number/],
    [{ input: [{ role: 'robot', content: 'x' }] }, 'input[0].role', /must be one of/],
    [{ input: [{ role: 'user', content: [{ type: 'video' }] }] }, 'input[0].content[0].type', /input_text/],
    [{ input: 5 }, 'input', /string or a list/],
    [{}, 'messages', /must be a list/],
    [
      { messages: [{ role: 'user', content: [{ type: 'input_image', file_id: 'f' }] }] },
      'messages[0].content[0].file_id',
      /image_url/,
    ],
    [
      { messages: [{ role: 'user', content: 'x' }], tools: [{ type: 'function', name: 'a b' }] },
      'tools[0].name',
      /letters/,
    ],
    [
      { messages: [{ role: 'user', content: 'x' }], tools: [{ type: 'custom', custom: { name: 'a b' } }] },
      'tools[0].custom.name',
      /letters/,
    ],
  ] as const)('%j', async (body, param, words) => {
    const { status, json } = await post({ model: MODEL, ...body })
    const { error } = json as { error: Json }
    expect([status, error.param]).toEqual([400, param])
    expect(error.message).toMatch(words)
    expect(upstream.seen).toEqual([])
  })

  // Goal: null counts as absent, as everywhere.
  test('null', async () => {
    const absent = { previous_response_id: null, conversation: null }
    expect((await post({ model: MODEL, input: 'Hi', messages: null, ...absent })).status).toBe(200)
    expect(
      (await post({ model: MODEL, messages: [{ role: 'user', content: 'x' }], input: null, ...absent })).status,
    ).toBe(200)
  })
})

describe('a body with messages', () => {
  // Goal: tools, choices and parts of the Responses API mean the same in it as those of chats.
  test('tools and parts of both forms', async () => {
    const tools = [
      { type: 'function', name: 'Read', description: 'Reads.', parameters, strict: false },
      readFile2,
      custom,
    ]
    const { status } = await post({
      model: MODEL,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'Hi' },
            { type: 'text', text: 'you' },
          ],
        },
        { role: 'assistant', content: [{ type: 'output_text', text: 'Yes?' }] },
        { role: 'user', content: 'x' },
      ],
      tools,
    })
    expect(status).toBe(200)
    expect(upstream.seen[0]?.body).toEqual({
      model: MODEL,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Hi' },
            { type: 'text', text: 'you' },
          ],
        },
        { role: 'assistant', content: [{ type: 'text', text: 'Yes?' }] },
        { role: 'user', content: 'x' },
      ],
      tools: [readFile, readFile2, applyPatch],
    })
  })
  const readFile2 = { type: 'function', function: { name: 'Read2', parameters } }

  // Goal: the tool that the client names is the only one that the engine is offered.
  test.each([
    [{ type: 'function', name: 'Read' }, ['Read'], 'required'],
    [{ type: 'function', function: { name: 'Read' } }, ['Read'], 'required'],
    [{ type: 'custom', name: 'ApplyPatch' }, ['ApplyPatch'], 'required'],
    [{ type: 'custom', custom: { name: 'ApplyPatch' } }, ['ApplyPatch'], 'required'],
    [{ type: 'allowed_tools', mode: 'auto', tools: [{ type: 'custom', name: 'ApplyPatch' }] }, ['ApplyPatch'], 'auto'],
    ['required', ['Read', 'ApplyPatch'], 'required'],
  ])('tool_choice %j', async (tool_choice, names, choice) => {
    upstream.behave = calling([[names.at(-1) ?? '', '{"input":"x"}']])
    const tools = [readFile, custom]
    expect((await post({ model: MODEL, messages: [{ role: 'user', content: 'x' }], tools, tool_choice })).status).toBe(
      200,
    )
    const seen = upstream.seen[0]?.body as { tools: { function: Json }[]; tool_choice: unknown }
    expect([seen.tools.map(tool => tool.function.name), seen.tool_choice]).toEqual([names, choice])
  })
})

describe('calls of custom tools', () => {
  const chatForm = {
    type: 'custom',
    custom: {
      name: 'ApplyPatch',
      description: 'Edits files.',
      format: { type: 'grammar', grammar: { syntax: 'lark', definition: 'start: "x"' } },
    },
  }
  const user = [{ role: 'user', content: 'Patch' }]

  // Goal: the client gets the text as OpenAI's chats have it, and beside it where Cursor reads it; a function beside it
  // stays as it is.
  test.each([
    ['input and a flat tool', { input: 'Patch', tools: [readFile.function, custom] }],
    ['messages and a flat tool', { messages: user, tools: [readFile, custom] }],
    ['messages and a nested tool', { messages: user, tools: [readFile, chatForm] }],
  ])('%s', async (_, given) => {
    const tools = given.tools.map(tool => ('type' in tool ? tool : { type: 'function', ...tool }))
    const body = { model: MODEL, ...given, tools }
    upstream.behave = calling([
      ['Read', '{"path":"a"}'],
      ['ApplyPatch', JSON.stringify({ input: PATCH })],
    ])
    const expected = [
      { id: 'call_0', type: 'function', function: { name: 'Read', arguments: '{"path":"a"}' } },
      {
        ...{ id: 'call_1', type: 'custom', custom: { name: 'ApplyPatch', input: PATCH } },
        function: { name: 'ApplyPatch', arguments: PATCH },
      },
    ]
    const { json } = await post(body)
    expect(openAiFaults('CreateChatCompletionResponse', json)).toEqual([])
    expect(json).toMatchObject({ choices: [{ message: { tool_calls: expected }, finish_reason: 'tool_calls' }] })
    const { calls, reason } = await streamed(body)
    expect([calls as unknown, reason]).toEqual([expected, 'tool_calls'])
    expect(upstream.seen[0]?.body.tools).toEqual([expect.anything(), applyPatch])
  })

  // Goal: a model's mistakes in the arguments reach the client as the text; half of a text does not.
  test.each([
    ['{}', 'tool_calls', ''],
    [PATCH, 'tool_calls', PATCH],
    ['{"patch":"x"}', 'tool_calls', '{"patch":"x"}'],
    ['{"input":"*** Beg', 'length', ''],
    ['{"input":"x"}', 'length', 'x'],
  ])('arguments %j, %s', async (args, finish, text) => {
    upstream.behave = calling([['ApplyPatch', args]], finish)
    const body = { model: MODEL, messages: user, tools: [custom] }
    const { json } = await post(body)
    const called = { custom: { name: 'ApplyPatch', input: text }, function: { name: 'ApplyPatch', arguments: text } }
    expect(json).toMatchObject({ choices: [{ message: { tool_calls: [called] } }] })
    expect((await streamed(body)).calls).toMatchObject([called])
  })

  // Goal: both forms of a call come back as history, beside or without the tool itself.
  test.each([
    { type: 'custom', custom: { name: 'ApplyPatch', input: PATCH } },
    { type: 'function', function: { name: 'ApplyPatch', arguments: PATCH } },
    {
      ...{ type: 'custom', custom: { name: 'ApplyPatch', input: PATCH } },
      function: { name: 'ApplyPatch', arguments: PATCH },
    },
  ])('replayed as %j', async call => {
    const messages = [
      ...user,
      { role: 'assistant', content: null, tool_calls: [{ id: 'c', ...call }] },
      { role: 'tool', tool_call_id: 'c', content: 'Done' },
    ]
    expect((await post({ model: MODEL, messages, tools: [custom] })).status).toBe(200)
    const seen = upstream.seen[0]?.body as { messages: { tool_calls: unknown }[] }
    const args = JSON.stringify({ input: PATCH })
    expect(seen.messages[1]?.tool_calls).toEqual([
      { id: 'c', type: 'function', function: { name: 'ApplyPatch', arguments: args } },
    ])
  })
})
