// The very bytes of a stream's chunks, and what is counted for a completion whose engine counts nothing.

import { expect, test } from 'bun:test'
import { utf8 } from '../../../src/base/bytes.ts'
import { ChunkConverter } from '../../../src/inference/openai/chunk.ts'
import { parseCompletion } from '../../../src/inference/openai/completion.ts'
import { parseRequest } from '../../../src/inference/openai/request.ts'
import type { CompletionOperation } from '../../../src/inference/types.ts'

function planOf(operation: CompletionOperation, more: Record<string, unknown>) {
  const tools = operation === 'chat' ? [{ type: 'function', function: { name: 'f' } }] : undefined
  const body = { model: 'm"x', messages: [{ role: 'user', content: 'x' }], prompt: 'x', tools, ...more }
  const { request } = parseRequest(operation, utf8(JSON.stringify(body)))
  return { request, id: 'chatcmpl-0123456789ab', createdS: 7, schema: null, obfuscate: null, dialect: null }
}

const chat = '{"id":"chatcmpl-0123456789ab","object":"chat.completion.chunk","created":7,"model":"m\\"x","choices":['
const text = '{"id":"chatcmpl-0123456789ab","object":"text_completion","created":7,"model":"m\\"x","choices":['
const open = '"logprobs":null,"finish_reason":null}'
const call = { index: 0, id: 'c', function: { name: 'f', arguments: '{' } }

// Goal: a chunk's fields and their order do not depend on the engine: the role in the first chunk only, no empty field.
test.each([
  [[{ content: 'a' }], `${chat}{"index":0,"delta":{"role":"assistant","content":"a"},${open}]`],
  [[{}], `${chat}{"index":0,"delta":{"role":"assistant","content":""},${open}]`],
  [
    [{ role: 'assistant' }, { refusal: 'no', content: 'é\u2028', role: 'x' }],
    `${chat}{"index":0,"delta":{"content":"é\u2028","refusal":"no"},${open}]`,
  ],
  [[{ content: '' }, {}], `${chat}{"index":0,"delta":{},${open}]`],
  [
    [{ tool_calls: [call] }],
    `${chat}{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{"}}]},${open}]`,
  ],
  [
    [{ tool_calls: [call] }, { content: null, tool_calls: [{ index: 0, function: { arguments: '}' } }] }],
    `${chat}{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},${open}]`,
  ],
])('chat %j', (deltas, last) => {
  for (const includeUsage of [false, true]) {
    const converter = new ChunkConverter(
      planOf('chat', { stream: true, stream_options: { include_usage: includeUsage } }),
      99,
    )
    const sent = deltas.map(delta => converter.convert(JSON.stringify({ extra: 1, choices: [{ index: 0, delta }] })))
    expect(sent.at(-1)).toBe(`${last}${includeUsage ? ',"usage":null}' : '}'}`)
  }
})

// Goal: the same for text completions, each of several choices under its own index, and for the chunk with the usage.
test('text', () => {
  const converter = new ChunkConverter(planOf('text_completion', { stream: true, n: 2 }), 99)
  expect(converter.convert('{"choices":[{"index":1,"text":"a"},{"index":0,"text":"b","finish_reason":"stop"}]}')).toBe(
    `${text}{"index":1,"text":"a",${open},{"index":0,"text":"b","logprobs":null,"finish_reason":"stop"}]}`,
  )
  expect(converter.usageChunk({ prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 })).toBe(
    `${text}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`,
  )
})

const counts = { bounds: { promptTokensMax: 100, completionTokensMax: 100 }, promptEstimate: 7, showsCached: false }

// Goal: reasoning is passed on under the engine's own name, and counted like content.
test('reasoning', () => {
  const converter = new ChunkConverter(planOf('chat', { stream: true }), 99)
  const sent = ['reasoning_content', 'reasoning'].map(name =>
    converter.convert(JSON.stringify({ choices: [{ index: 0, delta: { [name]: 'why' } }] })),
  )
  expect(sent).toEqual([
    `${chat}{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":"why"},${open}]}`,
    `${chat}{"index":0,"delta":{"reasoning":"why"},${open}]}`,
  ])
  expect(converter.deliveredCount).toBe(2)
  const message = { content: 'so', reasoning_content: 'why', reasoning: 'because' }
  const whole = { choices: [{ message, finish_reason: 'stop' }] }
  const { body } = parseCompletion(JSON.stringify(whole), planOf('chat', {}), counts)
  expect(body.choices).toMatchObject([{ message }])
})

// Goal: where the upstream counts no tokens, or more than there can be, an estimate is booked, and the row says which.
test('what is counted', () => {
  const choice = (content: string) => ({ message: { content }, finish_reason: 'stop' })
  const counted = (operation: CompletionOperation, completion: unknown) => {
    const { body, tokens, tokensSource } = parseCompletion(
      JSON.stringify(completion),
      planOf(operation, { n: 2 }),
      counts,
    )
    return { usage: body.usage, tokens, tokensSource }
  }
  const choices = [choice('four'), choice('fives')]
  const estimate = { prompt: 7, completion: Math.ceil('[{"content":"four"},{"content":"fives"}]'.length / 4) }
  expect(counted('chat', { choices })).toEqual({ usage: undefined, tokens: estimate, tokensSource: 'estimated' })
  const usage = { prompt_tokens: 1, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 1 } }
  expect(counted('chat', { choices, usage })).toEqual({
    usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
    tokens: { prompt: 1, completion: 2 },
    tokensSource: 'reported',
  })
  for (const impossible of [{ prompt_tokens: 101 }, { completion_tokens: 101 }, { completion_tokens: 9e15 }]) {
    expect(counted('chat', { choices, usage: { ...usage, ...impossible } })).toEqual({
      usage: undefined,
      tokens: estimate,
      tokensSource: 'implausible',
    })
  }
  const texts = ['four', 'fives'].map(item => ({ text: item, finish_reason: 'stop' }))
  expect(counted('text_completion', { choices: texts }).tokens).toEqual({ prompt: 7, completion: 4 })
})

// Goal: more tokens than bytes came are not believed, but for reasoning that the engine keeps to itself.
test('more tokens than bytes', () => {
  const wide = { bounds: { promptTokensMax: 9e9, completionTokensMax: 9e9 }, promptEstimate: 7, showsCached: false }
  const sourceOf = (usage: Record<string, unknown>) => {
    const completion = { choices: [{ message: { content: 'a' }, finish_reason: 'stop' }], usage }
    return parseCompletion(JSON.stringify(completion), planOf('chat', {}), wide).tokensSource
  }
  expect(sourceOf({ prompt_tokens: 1, completion_tokens: 100 })).toBe('reported')
  expect(sourceOf({ prompt_tokens: 1, completion_tokens: 1000 })).toBe('implausible')
  const hidden = { prompt_tokens: 1, completion_tokens: 1000, completion_tokens_details: { reasoning_tokens: 990 } }
  expect(sourceOf(hidden)).toBe('reported')
})
