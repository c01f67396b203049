// Which fields an upstream gets, within which bounds, and what is said of the others.

import { expect, test } from 'bun:test'
import { utf8 } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import type { Engine } from '../../../src/config/upstream/kinds.ts'
import { parseRequest } from '../../../src/inference/openai/request.ts'
import { upstreamBody } from '../../../src/inference/openai/upstream-body.ts'
import type { CompletionOperation } from '../../../src/inference/types.ts'

const messages = [{ role: 'user', content: 'Hi' }]

function sent(engine: Engine, fields: Record<string, unknown>, operation: CompletionOperation = 'chat') {
  const base = operation === 'chat' ? { model: 'm', messages } : { model: 'm', prompt: 'Hi' }
  const parsed = parseRequest(operation, utf8(JSON.stringify({ ...base, ...fields })))
  const { text, ignored } = upstreamBody(parsed, { engine, cacheSalt: () => 'salt-of-o1' })
  const { model, messages: _messages, prompt, ...rest } = JSON.parse(text)
  return { rest, ignored }
}

function faultOf(fields: Record<string, unknown>, operation: CompletionOperation = 'chat'): Fault | null {
  try {
    sent('openai', fields, operation)
    return null
  } catch (error) {
    if (error instanceof Fault) return error
    throw error
  }
}

// Goal: no engine gets a field that reads another caller's cache, picks its slot, hangs the engine or fetches URLs.
test.each(['openai', 'llama-server', 'vllm', 'sglang'] as const)('fields that %s never gets', engine => {
  const dangerous = {
    cache_prompt: true,
    id_slot: 0,
    slot_id: 0,
    n_probs: 1000,
    dry_multiplier: 0.8,
    dry_penalty_last_n: 1e9,
    cache_salt: 'mine',
    extra_key: 'mine',
    store: true,
    service_tier: 'priority',
    metadata: { a: 'b' },
    logits_processors: ['x'],
    t_max_predict_ms: 1e9,
    n_predict: -1,
    __proto: 1,
  }
  const { rest, ignored } = sent(engine, dangerous)
  const own = {
    openai: {},
    'llama-server': { cache_prompt: false },
    vllm: { cache_salt: 'salt-of-o1' },
    sglang: { cache_salt: 'salt-of-o1' },
  }
  expect(rest).toEqual(own[engine])
  // A salt of the client's has its effect through the gateway's own, or where there is no cache.
  const without = Object.keys(dangerous).filter(name => name !== 'cache_salt' || engine === 'openai')
  expect(ignored.toSorted()).toEqual(without.toSorted())
})

// Goal: an engine's own fields go to that engine alone.
test.each([
  ['openai', []],
  ['llama-server', ['chat_template_kwargs', 'min_p', 'repeat_penalty', 'top_k']],
  ['vllm', ['chat_template_kwargs', 'min_p', 'repetition_penalty', 'top_k']],
  ['sglang', ['chat_template_kwargs', 'min_p', 'repetition_penalty', 'top_k']],
] as const)('extras of %s', (engine, expected) => {
  const extras = {
    top_k: 40,
    min_p: 0.1,
    repeat_penalty: 1.1,
    repetition_penalty: 1.1,
    chat_template_kwargs: { enable_thinking: false },
  }
  const { rest, ignored } = sent(engine, extras)
  const got = Object.keys(rest).filter(name => name in extras)
  expect(got.toSorted() as readonly string[]).toEqual(expected)
  expect([...got, ...ignored].toSorted()).toEqual(Object.keys(extras).toSorted())
})

// Goal: every bound holds at its edge, and the error names the field.
test.each([
  ['temperature', [0, 2], [-0.1, 2.1, '1', true]],
  ['top_p', [0, 1], [1.1, -1]],
  ['presence_penalty', [-2, 2], [3]],
  ['frequency_penalty', [-2, 2], [-3]],
  ['max_tokens', [1, 100], [0, -1, 1.5, '5', 1e9]],
  ['max_completion_tokens', [1], [-1]],
  ['top_logprobs', [0, 20], [21]],
  ['logprobs', [true, false], ['yes', 6]],
  ['seed', [0, -5], [1.5, 1e30]],
  ['stop', ['a', ['a', 'b']], ['', [''], Array(17).fill('a'), 5, 'a'.repeat(2000)]],
  ['logit_bias', [{ 5: -100 }], [{ 5: 101 }, { x: 1 }, [], 5]],
  ['user', ['me'], [5, 'x'.repeat(300)]],
  ['reasoning_effort', ['low'], [5]],
  ['top_k', [-1, 1000], [1e6, 0.5]],
  ['min_p', [0, 1], [2]],
  ['repeat_penalty', [1], [0, 100]],
  ['chat_template_kwargs', [{ a: 1 }], [{ a: {} }, { a: 'x'.repeat(300) }, 'x']],
  ['n', [1, 128], [0, 129, '1']],
] as const)('bounds of %s', (name, good, bad) => {
  for (const value of [...good, null]) expect([value, faultOf({ [name]: value })?.message]).toEqual([value, undefined])
  for (const value of bad) {
    const fault = faultOf({ [name]: value })
    expect([value, fault?.code, fault?.param, fault?.message.startsWith(`${name} `)]).toEqual([
      value,
      'invalid_request',
      name,
      true,
    ])
  }
})

// Goal: what no engine here can take is refused with the path of what is wrong, before an upstream sees it.
test.each([
  ['messages[0].tool_calls[0]', [{ role: 'assistant', tool_calls: [{ id: 'c', type: 'function' }] }]],
  ['messages[0].content[0].video_url.url', [{ role: 'user', content: [{ type: 'video_url' }] }]],
  ['messages[0].content[0].type', [{ role: 'user', content: [{ type: 'toString' }] }]],
  ['messages[0].content[1].text', [{ role: 'user', content: [{ type: 'text', text: 'a' }, { type: 'text' }] }]],
  ['messages[0].content[0].image_url.url', [{ role: 'user', content: [image('file:///etc/passwd')] }]],
  ['messages[0].content[0].file.file_data', [{ role: 'user', content: [{ type: 'file', file: { file_id: 'x' } }] }]],
  ['messages[0].role', [{ role: 'robot', content: 'x' }]],
])('%s', (param, wrong) => {
  expect(faultOf({ messages: wrong })).toMatchObject({ code: 'invalid_request', param })
})

// Goal: a schema that would be heavy to compile is refused where we compile it.
test.each([
  ['has a minItems', { type: 'array', minItems: 1e9 }],
  ['has a maxLength', { type: 'string', maxLength: -1 }],
  ['has a $ref to another document', { $ref: 'https://example.org/schema' }],
  ['has a pattern', { type: 'string', pattern: 'a'.repeat(600) }],
  [
    'is nested deeper',
    Array(70)
      .fill(0)
      .reduce<object>(inner => ({ items: inner }), {}),
  ],
  ['has more than', { enum: Array(20_001).fill([]) }],
])('a schema that %s', (problem, schema) => {
  const path = 'response_format.json_schema.schema'
  const format = { type: 'json_schema', json_schema: { name: 's', strict: true, schema } }
  expect(faultOf({ response_format: format })).toMatchObject({ param: path })
  expect(faultOf({ response_format: format })?.message).toStartWith(`${path} ${problem}`)
})

function image(url: string) {
  return { type: 'image_url', image_url: { url } }
}
