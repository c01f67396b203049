// Requests: strict JSON, the fields that we answer for, and what becomes of them upstream.

import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { utf8 } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import { parseJsonText } from '../../../src/inference/json-text.ts'
import { parseRequest } from '../../../src/inference/openai/request.ts'
import type { CompletionOperation } from '../../../src/inference/types.ts'

const user = { role: 'user', content: 'Hi' }
const base = { model: 'm', messages: [user] }
const limits = { depthMax: 50, namesMax: 1000, valuesMax: 10_000, escapesMax: 1000 }
const tool = { type: 'function', function: { name: 'f' } }
const call = { id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }

function verdict(operation: CompletionOperation, body: unknown): 'ok' | string {
  try {
    parseRequest(operation, utf8(typeof body === 'string' ? body : JSON.stringify(body)))
    return 'ok'
  } catch (error) {
    if (!(error instanceof Fault)) throw error
    return error.code
  }
}

describe('chat', () => {
  // Goal: these are taken, each with a feature of OpenAI's own clients.
  test('good requests', () => {
    const good = [
      base,
      {
        ...base,
        messages: [
          { role: 'developer', content: 'x' },
          { role: 'user', content: [{ type: 'text', text: 'x' }] },
        ],
      },
      {
        ...base,
        messages: [
          user,
          { role: 'assistant', content: null, tool_calls: [call] },
          { role: 'tool', tool_call_id: 'c', content: 'x' },
        ],
      },
      { ...base, stream: true, stream_options: { include_usage: true } },
      { ...base, stream: null, tools: [], tool_choice: 'auto', n: 2, stop: ['x'], logit_bias: { 5: 1 } },
      { ...base, tools: [tool], tool_choice: { type: 'function', function: { name: 'f' } } },
      { ...base, response_format: { type: 'json_schema', json_schema: { name: 'x', schema: {} } } },
    ]
    expect(good.map(body => verdict('chat', body))).toEqual(good.map(() => 'ok'))
  })

  // Goal: each of these is refused for one thing that is wrong with it.
  test('bad requests', () => {
    const bad: unknown[] = [
      '',
      '[]',
      '{',
      '{"model":"m","model":"n","messages":[]}',
      '{"model":"m","mod\\u0065l":"n","messages":[{"role":"user","content":"x"}]}',
      `${'['.repeat(200)}${']'.repeat(200)}`,
      { ...base, model: 5 },
      { ...base, model: '' },
      { model: 'm' },
      { ...base, messages: [] },
      { ...base, messages: ['x'] },
      { ...base, messages: [{ role: 'robot', content: 'x' }] },
      { ...base, messages: [{ role: 'user' }] },
      { ...base, messages: [{ role: 'user', content: [] }] },
      { ...base, messages: [{ role: 'tool', content: 'x' }] },
      { ...base, messages: [{ role: 'assistant', tool_calls: [{ id: 'c' }] }] },
      { ...base, stream: 'yes' },
      { ...base, stream_options: { include_usage: true } },
      { ...base, n: 0 },
      { ...base, n: 1000 },
      { ...base, functions: [] },
      { ...base, tools: {} },
      { ...base, tools: [{ type: 'custom' }] },
      { ...base, tools: [tool, tool] },
      { ...base, tools: [{ type: 'function', function: { name: 'no spaces' } }] },
      { ...base, tool_choice: 'required' },
      { ...base, tools: [tool], tool_choice: 'sometimes' },
      { ...base, tools: [tool], tool_choice: { type: 'function', function: { name: 'g' } } },
      { ...base, response_format: 'json' },
      { ...base, response_format: { type: 'xml' } },
      { ...base, response_format: { type: 'json_schema' } },
      { ...base, response_format: { type: 'json_schema', json_schema: { name: 'x', strict: true } } },
    ]
    expect(bad.map(body => [body, verdict('chat', body)])).toEqual(bad.map(body => [body, 'invalid_request']))
  })
})

// Goal: prompts in all four forms, with as many choices expected as they ask for.
test('prompts', () => {
  const counts: [prompt: unknown, choices: number][] = [
    ['x', 1],
    [['x', 'y'], 2],
    [[1, 2, 3], 1],
    [[[1], [2, 3]], 2],
  ]
  for (const [prompt, choices] of counts) {
    const body = utf8(JSON.stringify({ model: 'm', prompt, n: 2 }))
    expect(parseRequest('text_completion', body).request.choiceCount).toBe(choices * 2)
  }
  for (const prompt of [undefined, null, 5, [], ['x', 5], [[]], [1.5], [-1], {}]) {
    expect(verdict('text_completion', { model: 'm', prompt })).toBe('invalid_request')
  }
})

// Goal: any JSON value comes out as JSON.parse gives it, however it is spaced, and bytes that are no UTF-8 are refused.
test('strict JSON lets every value through', () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 5 }), fc.constantFrom(undefined, 1, '\t'), (value, space) => {
      const text = JSON.stringify(value, null, space)
      expect(parseJsonText(text, limits)).toEqual(JSON.parse(text))
    }),
    { numRuns: 300 },
  )
  expect(() => parseRequest('chat', new Uint8Array([0x7b, 0xff]))).toThrow('UTF-8')
})

// Goal: a name twice is found wherever it hides, and the same name at different places is not taken for it.
test('names twice', () => {
  for (const text of [
    '{"a":1,"a":1}',
    '[{"x":{"b":1,"b":2}}]',
    '{"a\\"":1,"a\\"":2}',
    '{"__proto__":1,"__proto__":2}',
  ]) {
    expect(() => parseJsonText(text, limits)).toThrow('twice')
  }
  for (const text of ['{"a":{"a":1},"b":{"a":1}}', '{"a":":\\\\","b":"\\":"}', '{"__proto__":{"a":1}}']) {
    expect(parseJsonText(text, limits)).toEqual(JSON.parse(text))
  }
})

// Goal: so many fields are read and one more is refused, however they are spread; colons in texts are none.
test('fields', () => {
  const names = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`n${at}`, ':"{']))
  const spread = { ...names(400), inner: [names(300), { deep: names(298) }] }
  expect(parseJsonText(JSON.stringify(spread), limits)).toEqual(spread)
  expect(() => parseJsonText(JSON.stringify({ ...spread, one: 1 }), limits)).toThrow('more than 1000 fields')
  // Five more stand in the body itself.
  expect(verdict('chat', { ...base, metadata: names(32_763) })).toBe('ok')
  expect(verdict('chat', { ...base, metadata: names(32_764) })).toBe('invalid_request')
})

// Goal: so many values are read and one more is refused, whatever they are; commas and brackets in texts are none.
test('values', () => {
  const lists = (count: number) => JSON.stringify(Array.from({ length: count }, () => []))
  const numbers = (count: number) => JSON.stringify(Array.from({ length: count }, () => 1))
  expect(parseJsonText(lists(5_000), limits)).toHaveLength(5_000)
  expect(() => parseJsonText(lists(5_001), limits)).toThrow('more than 10000 values')
  expect(parseJsonText(numbers(10_000), limits)).toHaveLength(10_000)
  expect(() => parseJsonText(numbers(10_001), limits)).toThrow('more than 10000 values')
  expect(parseJsonText(`"${'[,'.repeat(20_000)}"`, limits)).toHaveLength(40_000)
})

// Goal: so many escapes are read and one more is refused, in names and texts alike; two backslashes are one.
test('escapes', () => {
  const text = (text: string, count: number) => JSON.stringify({ [`a${text}`]: text.repeat(count - 1) })
  for (const item of ['\n', '"', '\\', '\u0001']) {
    expect(parseJsonText(text(item, 1000), limits)).toEqual(JSON.parse(text(item, 1000)))
    expect(() => parseJsonText(text(item, 1001), limits)).toThrow('more than 1000 escapes')
  }
})

const bodyBytes = 4_194_304
const chatOf = (content: string) => utf8(`{"model":"m","messages":[{"role":"user","content":"${content}"}]}`)
const unitsOf = (unit: string) => unit.repeat(Math.floor((bodyBytes - 100) / unit.length))

// Goal: real clients' bodies pass up to the size limit: code, and text written wholly in escapes.
test.each([
  ['source code', '  if (a === \\"b\\") {\\n    return [1, 2, 3].map(x => x * factor)\\n  }\\n'],
  ['CJK text as escapes', '\\u4f60'],
  ['emoji as escapes', '\\ud83d\\ude00'],
])('4 MiB of %s', (_name, unit) => {
  const { source } = parseRequest('chat', chatOf(unitsOf(unit)))
  expect(source.body.model).toBe('m')
})
