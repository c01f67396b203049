// Each known deviation of an engine: the same answer in all three APIs, whole or streamed. And forms without a meaning.

import { describe, expect, test } from 'bun:test'
import { present } from '../../../../src/base/assert.ts'
import { utf8 } from '../../../../src/base/bytes.ts'
import { DIALECTS } from '../../../../src/inference/dialects/dialects.ts'
import { chatOfResponse } from '../../../../src/inference/dialects/responses/request.ts'
import { UpstreamFault } from '../../../../src/inference/failure.ts'
import { ChunkStream } from '../../../../src/inference/openai/chunk-stream.ts'
import { parseCompletion } from '../../../../src/inference/openai/completion.ts'
import type { CompletionPlan } from '../../../../src/inference/openai/completion-plan.ts'
import deviations from '../../../../src/inference/openai/engines/deviations.md' with { type: 'text' }
import { parseRequest } from '../../../../src/inference/openai/request.ts'
import { usageOf } from '../../../../src/inference/openai/usage.ts'
import { namedEventsOf } from '../../../rigs/dialects/apis.ts'

type Json = Record<string, unknown>
type Answer = { text: string; reasoning: string; calls: { id?: string; name: string; args: string }[]; finish: string }
type Api = 'chat' | 'responses' | 'messages'
const APIS: readonly Api[] = ['chat', 'responses', 'messages']

const counts = { bounds: { promptTokensMax: 100, completionTokensMax: 100 }, promptEstimate: 7, showsCached: false }
const head = { id: '0a', createdS: 7, model: 'm', keep: null }
const traits = present(chatOfResponse({ model: 'm', input: 'x' }, null).traits, 'traits')

function planOf(api: Api, more: Json = {}): CompletionPlan {
  const tools = ['f', 'g'].map(name => ({ type: 'function', function: { name } }))
  const body = { model: 'm', messages: [{ role: 'user', content: 'x' }], tools, ...more }
  const { request } = parseRequest('chat', utf8(JSON.stringify(body)))
  const dialect = api === 'chat' ? null : DIALECTS[api].respond(traits, head)
  return { request, id: 'chatcmpl-0123456789ab', createdS: 7, schema: null, obfuscate: null, dialect }
}

// An answer as a client of each API reads it.

function streamed(api: Api, events: readonly string[], more: Json = {}): Answer & { usage: unknown } {
  const stream = new ChunkStream(planOf(api, { stream: true, ...more }), {
    eventBytesMax: 9_999,
    responseBytesMax: 9_999,
  })
  const { text, isEnd } = stream.push(utf8(events.join('')))
  if (!isEnd) throw new Error('the stream has no end')
  const sent = text + stream.finish(stream.usage ?? usageOf({ prompt: 0, completion: 0 })) + stream.end
  const answer = api === 'chat' ? readChat(sent) : api === 'messages' ? readMessages(sent) : readResponses(sent)
  return { ...answer, usage: stream.usage }
}

function readChat(sent: string): Answer {
  const answer: Answer = { text: '', reasoning: '', calls: [], finish: '' }
  for (const event of sent.split('\n\n').filter(item => item !== '' && item !== 'data: [DONE]')) {
    const [choice] = JSON.parse(event.slice('data: '.length)).choices
    if (choice === undefined) continue
    answer.text += choice.delta.content ?? ''
    answer.reasoning += choice.delta.reasoning_content ?? ''
    for (const { index, id, function: called } of choice.delta.tool_calls ?? []) {
      if (id !== undefined) answer.calls[index] = { id, name: called.name, args: '' }
      present(answer.calls[index], 'a call that began').args += called.arguments
    }
    if (choice.finish_reason === null) continue
    expect(answer.finish).toBe('')
    answer.finish = choice.finish_reason
  }
  return answer
}

const FINISH: Json = { end_turn: 'stop', max_tokens: 'length', refusal: 'content_filter', tool_use: 'tool_calls' }

function readMessages(sent: string): Answer {
  const answer: Answer = { text: '', reasoning: '', calls: [], finish: '' }
  for (const event of namedEventsOf(sent) as { content_block?: Json; delta?: Json }[]) {
    const { content_block: block, delta = {} } = event
    if (block?.type === 'tool_use') answer.calls.push({ id: String(block.id), name: String(block.name), args: '' })
    answer.text += delta.text ?? ''
    answer.reasoning += delta.thinking ?? ''
    if (delta.partial_json !== undefined) present(answer.calls.at(-1), 'a call').args += delta.partial_json
    if (delta.stop_reason !== undefined) answer.finish = String(FINISH[String(delta.stop_reason)])
  }
  return answer
}

function readResponses(sent: string): Answer {
  const answer: Answer = { text: '', reasoning: '', calls: [], finish: '' }
  const {
    status,
    incomplete_details: details,
    output,
  } = present(namedEventsOf(sent).at(-1), 'an event').response as {
    status: string
    incomplete_details: { reason: string } | null
    output: { type: string; content: { text: string }[]; call_id: string; name: string; arguments: string }[]
  }
  for (const item of output) {
    const text = (item.content ?? []).map(part => part.text).join('')
    if (item.type === 'message') answer.text += text
    else if (item.type === 'reasoning') answer.reasoning += text
    else answer.calls.push({ id: item.call_id, name: item.name, args: item.arguments })
  }
  const cut = details?.reason === 'content_filter' ? 'content_filter' : 'length'
  answer.finish = status === 'incomplete' ? cut : answer.calls.length > 0 ? 'tool_calls' : 'stop'
  return answer
}

function whole(document: unknown, more: Json = {}) {
  const { body, usage, tokensSource } = parseCompletion(JSON.stringify(document), planOf('chat', more), counts)
  const dialects = (['responses', 'messages'] as const).map(api =>
    JSON.parse(DIALECTS[api].respond(traits, head).whole(body, usage)),
  )
  return { choices: body.choices as Json[], usage, tokensSource, dialects }
}

/** The reason why an answer is refused; null if it is not. */
function refusal(work: () => unknown): string | null {
  try {
    work()
    return null
  } catch (error) {
    if (error instanceof UpstreamFault) return error.reason
    throw error
  }
}

// Documents of engines.

const data = (document: unknown) => `data: ${JSON.stringify(document)}\n\n`
const chunk = (delta: Json, finish: string | null = null, more: Json = {}) =>
  data({ object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }], ...more })
const DONE = 'data: [DONE]\n\n'
const x = chunk({ content: 'x' })
const stop = chunk({}, 'stop')
const call = (more: Json, called: Json) => chunk({ tool_calls: [{ ...more, function: called }] })
const calls = chunk({}, 'tool_calls')
const text = { text: 'x', reasoning: '', calls: [], finish: 'stop' }
const f = { name: 'f', args: '{"a":1}' }
const g = { name: 'g', args: '{"b":2}' }
const called = (...all: Answer['calls']) => ({ text: '', reasoning: '', calls: all, finish: 'tool_calls' })
const given = { prompt_tokens: 12, completion_tokens: 9, total_tokens: 21 }
const ended = (finish: string) => [x, chunk({}, finish), DONE]

type Row = { readonly stream: readonly string[]; readonly answer: Partial<Answer>; readonly usage?: unknown }

const STREAMS: Record<string, Row> = {
  'named ping event': {
    stream: ['event: ping\ndata: {}\n\n', x, 'event: ping\ndata: ping\n\nevent: ping\n\n', stop, DONE],
    answer: text,
  },
  'ping in the data': { stream: [data({ type: 'ping' }), x, stop, DONE], answer: text },
  'event with empty data': { stream: ['data:\n\n', x, 'data: \n\n', stop, DONE], answer: text },
  'white space around [DONE]': { stream: [x, stop, 'data:  [DONE] \n\n'], answer: text },
  'usage chunk without choices': { stream: [x, stop, data({ usage: given }), DONE], answer: text, usage: given },
  'usage chunk with null choices': {
    stream: [x, stop, data({ choices: null, usage: given }), DONE],
    answer: text,
    usage: given,
  },
  'message instead of delta': {
    stream: [
      data({ choices: [{ index: 0, message: { role: 'assistant', content: 'x' }, finish_reason: null }] }),
      stop,
      DONE,
    ],
    answer: text,
  },
  'finish reason repeated': { stream: [x, stop, chunk({ content: '' }, 'stop'), DONE], answer: text },
  'empty usage': { stream: [chunk({ content: 'x' }, null, { usage: {} }), stop, DONE], answer: text, usage: null },
  'usage with details alone': {
    stream: [chunk({ content: 'x' }, null, { usage: { prompt_tokens_details: { cached_tokens: 0 } } }), stop, DONE],
    answer: text,
    usage: null,
  },
  'usage without completion_tokens': {
    stream: [x, chunk({}, 'stop', { usage: { prompt_tokens: 12, total_tokens: 21 } }), DONE],
    answer: text,
    usage: given,
  },
  'usage by the names of Responses': {
    stream: [x, chunk({}, 'stop', { usage: { input_tokens: 12, output_tokens: 9, total_tokens: 21 } }), DONE],
    answer: text,
    usage: given,
  },
  'finish reason eos': { stream: ended('eos'), answer: text },
  'finish reason eos_token': { stream: ended('eos_token'), answer: text },
  'finish reason stop_sequence': { stream: ended('stop_sequence'), answer: text },
  'finish reason end_turn': { stream: ended('end_turn'), answer: text },
  'finish reason max_tokens': { stream: ended('max_tokens'), answer: { ...text, finish: 'length' } },
  'finish reason model_length': { stream: ended('model_length'), answer: { ...text, finish: 'length' } },
  'finish reason sensitive': { stream: ended('sensitive'), answer: { ...text, finish: 'content_filter' } },
  'finish reason function_call': {
    stream: [call({ index: 0, id: 'c' }, { name: 'f', arguments: '{"a":1}' }), chunk({}, 'function_call'), DONE],
    answer: called({ id: 'c', ...f }),
  },
  'finish reason tool_use': {
    stream: [call({ index: 0, id: 'c' }, { name: 'f', arguments: '{"a":1}' }), chunk({}, 'tool_use'), DONE],
    answer: called({ id: 'c', ...f }),
  },
  'finish reason tool_calls without calls': { stream: ended('tool_calls'), answer: text },
  'arguments as an object': {
    stream: [call({ index: 0, id: 'c' }, { name: 'f', arguments: { a: 1 } }), calls, DONE],
    answer: called({ id: 'c', ...f }),
  },
  'call without arguments': {
    stream: [call({ index: 0, id: 'c' }, { name: 'f' }), calls, DONE],
    answer: called({ id: 'c', name: 'f', args: '' }),
  },
  'call without index': {
    stream: [
      call({ id: 'c' }, { name: 'f', arguments: '{"a"' }),
      call({}, { arguments: ':1}' }),
      call({ id: 'd' }, { name: 'g', arguments: '{"b":2}' }),
      call({}, { name: 'f', arguments: '{"a":1}' }),
      calls,
      DONE,
    ],
    answer: called({ id: 'c', ...f }, { id: 'd', ...g }, { id: 'call_0123456789ab_2', ...f }),
  },
  'one index for all calls': {
    stream: [
      call({ index: 0, id: 'c' }, { name: 'f', arguments: '{"a":1}' }),
      chunk({ content: '\n' }),
      call({ index: 0, id: 'd' }, { name: 'g', arguments: '{"b"' }),
      call({ index: 0, id: 'd' }, { name: 'g', arguments: ':2}' }),
      calls,
      DONE,
    ],
    answer: { ...called({ id: 'c', ...f }, { id: 'd', ...g }), text: '\n' },
  },
  'first index is 1': {
    stream: [
      call({ index: 1, id: 'c' }, { name: 'f', arguments: '{"a"' }),
      call({ index: 1 }, { arguments: ':1}' }),
      calls,
      DONE,
    ],
    answer: called({ id: 'c', ...f }),
  },
  'one id for all calls': {
    stream: [
      call({ index: 0, id: 'c' }, { name: 'f', arguments: '{"a":1}' }),
      call({ index: 1, id: 'c' }, { name: 'g', arguments: '{"b":2}' }),
      calls,
      DONE,
    ],
    answer: called({ id: 'c', ...f }, { id: 'call_0123456789ab_1', ...g }),
  },
  'function_call member': {
    stream: [
      chunk({ function_call: { name: 'f', arguments: '' } }),
      chunk({ function_call: { arguments: '{"a":1}' } }),
      chunk({}, 'function_call'),
      DONE,
    ],
    answer: called({ id: 'call_0123456789ab_0', ...f }),
  },
  'channel in the name of a tool': {
    stream: [call({ index: 0, id: 'c' }, { name: 'f<|channel|>commentary', arguments: '{"a":1}' }), calls, DONE],
    answer: called({ id: 'c', ...f }),
  },
  'namespace in the name of a tool': {
    stream: [call({ index: 0, id: 'c' }, { name: 'functions.f', arguments: '{"a":1}' }), calls, DONE],
    answer: called({ id: 'c', ...f }),
  },
  'content in parts': {
    stream: [
      chunk({ content: [{ type: 'thinking', thinking: [{ type: 'text', text: 'why' }] }] }),
      chunk({ content: [{ type: 'text', text: 'x' }] }),
      stop,
      DONE,
    ],
    answer: { ...text, reasoning: 'why' },
  },
  reasoning_details: {
    stream: [
      chunk({ content: '', reasoning_details: [{ type: 'reasoning.text', text: 'wh' }] }),
      chunk({ content: '', reasoning_details: [{ type: 'reasoning.summary', summary: 'y' }] }),
      chunk({ content: 'x', reasoning_details: [{ type: 'reasoning.encrypted', data: 'AA==' }] }),
      stop,
      DONE,
    ],
    answer: { ...text, reasoning: 'why' },
  },
  'null role': { stream: [chunk({ role: null, content: 'x' }), stop, DONE], answer: text },
  'null log probability': {
    stream: [
      data({
        choices: [{ index: 0, delta: { content: 'x' }, logprobs: { content: [{ token: 'x', logprob: null }] } }],
      }),
      stop,
      DONE,
    ],
    answer: text,
  },
  'empty list of log probabilities': {
    stream: [data({ choices: [{ index: 0, delta: { content: 'x' }, logprobs: [] }] }), stop, DONE],
    answer: text,
  },
}

// Goal: no row of the list is without a case.
test('every row has a case', () => {
  const forms = [...deviations.matchAll(/^\| (.+?) +\| /gm)].map(([, form]) => form)
  const listed = forms.filter(form => form !== 'Form' && !/^-+$/.test(form ?? ''))
  expect(listed).toEqual([...Object.keys(STREAMS), 'choices out of order'])
})

describe.each(APIS)('a stream in %s', api => {
  for (const [form, { stream, answer, usage }] of Object.entries(STREAMS)) {
    test(`goal: ${form}: the client gets the whole answer`, () => {
      const { usage: counted, ...got } = streamed(api, stream)
      expect(got).toMatchObject(answer)
      if (usage !== undefined) expect(counted as unknown).toEqual(usage)
    })
  }
})

const message = (fields: Json, finish: unknown = 'stop', more: Json = {}) => ({
  choices: [{ index: 0, message: { role: 'assistant', ...fields }, finish_reason: finish, ...more }],
})
const toolCall = (more: Json, called: Json) => message({ tool_calls: [{ ...more, function: called }] }, 'tool_calls')

const WHOLES: Record<string, readonly [document: Json, choice: Json]> = {
  'empty usage': [{ ...message({ content: 'x' }), usage: {} }, { finish_reason: 'stop' }],
  'finish reason eos': [message({ content: 'x' }, 'eos'), { finish_reason: 'stop' }],
  'finish reason model_length': [message({ content: 'x' }, 'model_length'), { finish_reason: 'length' }],
  'finish reason tool_calls without calls': [message({ content: 'x' }, 'tool_calls'), { finish_reason: 'stop' }],
  'null role': [message({ role: null, content: 'x' }), { message: { role: 'assistant', content: 'x' } }],
  'content in parts': [
    message({
      content: [
        { type: 'thinking', thinking: [{ type: 'text', text: 'why' }] },
        { type: 'text', text: 'x' },
      ],
    }),
    { message: { content: 'x', reasoning_content: 'why' } },
  ],
  reasoning_details: [
    message({ content: 'x', reasoning_details: [{ type: 'reasoning.text', text: 'why' }] }),
    { message: { content: 'x', reasoning_content: 'why' } },
  ],
  'arguments as an object': [
    toolCall({ id: 'c' }, { name: 'f', arguments: { a: 1 } }),
    { message: { tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }] } },
  ],
  'call without arguments': [
    toolCall({ id: 'c' }, { name: 'f' }),
    { message: { tool_calls: [{ function: { name: 'f', arguments: '{}' } }] } },
  ],
  'function_call member': [
    message({ content: null, function_call: { name: 'f', arguments: '{}' } }, 'function_call'),
    {
      finish_reason: 'tool_calls',
      message: { tool_calls: [{ id: 'call_0123456789ab_0', function: { name: 'f', arguments: '{}' } }] },
    },
  ],
  'one id for all calls': [
    message({ tool_calls: ['f', 'g'].map(name => ({ id: 'c', function: { name, arguments: '{}' } })) }, 'tool_calls'),
    { message: { tool_calls: [{ id: 'c' }, { id: 'call_0123456789ab_1' }] } },
  ],
  'channel in the name of a tool': [
    toolCall({ id: 'c' }, { name: 'f<|channel|>commentary', arguments: '{}' }),
    { message: { tool_calls: [{ function: { name: 'f' } }] } },
  ],
  'null log probability': [
    message({ content: 'x' }, 'stop', { logprobs: { content: [{ token: 'x', logprob: null }] } }),
    { logprobs: { content: [{ token: 'x', logprob: -9999, bytes: null, top_logprobs: [] }], refusal: null } },
  ],
}

describe('a whole answer', () => {
  for (const [form, [document, choice]] of Object.entries(WHOLES)) {
    test(`goal: ${form}: the client gets the whole answer`, () => {
      const { choices, dialects } = whole(document)
      expect(choices).toMatchObject([choice])
      expect(dialects).toMatchObject([{ object: 'response' }, { type: 'message' }])
    })
  }

  test('goal: choices out of order come in order; an index that is there twice has no meaning', () => {
    const choices = (...indices: unknown[]) => ({
      choices: indices.map((index, at) => ({ index, message: { content: `c${at}` }, finish_reason: 'stop' })),
    })
    expect(whole(choices(1, 0), { n: 2 }).choices).toMatchObject([
      { index: 0, message: { content: 'c1' } },
      { index: 1, message: { content: 'c0' } },
    ])
    for (const indices of [
      [0, 0],
      [0, 2],
      ['0', 1],
      [-1, 0],
    ]) {
      expect(refusal(() => whole(choices(...indices), { n: 2 }))).toBe('malformed')
    }
  })
})

describe('forms without a meaning, or with two, are refused', () => {
  const STREAMS_REFUSED: Record<string, readonly [stream: readonly string[], reason: string]> = {
    'an unknown finish reason': [ended('leaky'), 'malformed'],
    'an engine that gave up': [ended('abort'), 'reported_error'],
    'two different ends': [[x, stop, chunk({}, 'length'), DONE], 'malformed'],
    'text after the end': [[x, stop, x, DONE], 'malformed'],
    'no finish reason': [[x, DONE], 'unfinished'],
    'a document of another kind': [[x, data({ answer: 42 }), stop, DONE], 'malformed'],
    'an error by its object': [[x, data({ object: 'error', message: 'leaky' }), stop, DONE], 'reported_error'],
    'a negative usage': [[chunk({ content: 'x' }, 'stop', { usage: { prompt_tokens: -5 } }), DONE], 'malformed'],
    'arguments that are a number': [
      [call({ index: 0, id: 'c' }, { name: 'f', arguments: 7 }), calls, DONE],
      'malformed',
    ],
    'two objects of arguments': [
      [
        call({ index: 0, id: 'c' }, { name: 'f', arguments: { a: 1 } }),
        call({ index: 0 }, { arguments: { b: 2 } }),
        calls,
        DONE,
      ],
      'malformed',
    ],
    'a call without a name': [[call({ index: 0, id: 'c' }, { arguments: '{}' }), calls, DONE], 'malformed'],
    'content with an image': [[chunk({ content: [{ type: 'image_url' }] }), stop, DONE], 'malformed'],
  }
  for (const [form, [stream, reason]] of Object.entries(STREAMS_REFUSED)) {
    test(`goal: ${form} in a stream`, () => {
      for (const api of APIS) expect([api, refusal(() => streamed(api, stream))]).toEqual([api, reason])
    })
  }

  test('goal: whole answers', () => {
    const refused = (document: Json) => refusal(() => whole(document))
    expect(refused(message({ content: 'x' }, 'leaky'))).toBe('malformed')
    expect(refused(message({ content: 'x' }, 'abort'))).toBe('reported_error')
    expect(refused(message({ content: 'x' }, null))).toBe('malformed')
    expect(refused({ error: { message: 'leaky' } })).toBe('reported_error')
    expect(refused(message({ role: 'user', content: 'x' }))).toBe('malformed')
    expect(refused(toolCall({ id: 'c' }, { arguments: '{}' }))).toBe('malformed')
  })
})
