// The very bytes of a stream's chunks, and what is counted for a completion whose engine counts nothing.

import { expect, test } from 'bun:test'
import { utf8 } from '../../../src/base/bytes.ts'
import { ChunkConverter } from '../../../src/inference/openai/chunk.ts'
import { parseCompletion } from '../../../src/inference/openai/completion.ts'
import { parseRequest } from '../../../src/inference/openai/request.ts'
import type { Operation } from '../../../src/inference/types.ts'

function planOf(operation: Operation, more: Record<string, unknown>) {
  const tools = operation === 'chat' ? [{ type: 'function', function: { name: 'f' } }] : undefined
  const body = { model: 'm"x', messages: [{ role: 'user', content: 'x' }], prompt: 'x', tools, ...more }
  const request = parseRequest(operation, utf8(JSON.stringify(body)))
  return { request, id: 'chatcmpl-0123456789ab', createdS: 7, schema: null }
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

// Goal: characters are counted where tokens are not, in texts and in messages with their calls, over all choices.
test('what is counted', () => {
  const choice = (content: string) => ({ message: { content }, finish_reason: 'stop' })
  const message = '{"role":"assistant","content":"four","refusal":null}'
  const usage = { prompt_tokens: 1, completion_tokens: 2 }
  const counted = (operation: Operation, completion: unknown) => {
    const { tokens, textChars } = parseCompletion(JSON.stringify(completion), planOf(operation, { n: 2 }))
    return { tokens, textChars }
  }
  const choices = [choice('four'), choice('fives')]
  expect(counted('chat', { choices })).toEqual({ tokens: null, textChars: 2 * message.length + 1 })
  expect(counted('chat', { choices, usage })).toMatchObject({ tokens: { prompt: 1, completion: 2 } })
  const texts = ['four', 'fives'].map(one => ({ text: one, finish_reason: 'stop' }))
  expect(counted('text_completion', { choices: texts })).toEqual({ tokens: null, textChars: 9 })
})
