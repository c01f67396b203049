// Padded chunks: what their sizes tell, and that nothing else of them changes.

import { expect, test } from 'bun:test'
import { utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { ChunkConverter } from '../../../src/inference/openai/chunk.ts'
import { createObfuscate } from '../../../src/inference/openai/obfuscation.ts'
import { parseRequest } from '../../../src/inference/openai/request.ts'
import type { CompletionOperation } from '../../../src/inference/types.ts'

function converterOf(operation: CompletionOperation, isPadded = true, options: Record<string, unknown> = {}) {
  const body = { model: 'modèle', messages: [{ role: 'user', content: 'x' }], prompt: 'x', stream: true, ...options }
  const { request } = parseRequest(operation, utf8(JSON.stringify(body)))
  const obfuscate = isPadded ? createObfuscate(systemRandom) : null
  return new ChunkConverter({ request, id: 'chatcmpl-1', createdS: 7, schema: null, obfuscate, dialect: null }, 99)
}

function chunkOf(converter: ChunkConverter, choice: Record<string, unknown>): string {
  const chunk = converter.convert(JSON.stringify({ choices: [{ index: 0, ...choice }] }))
  if (chunk === null || chunk === 'end') throw new Error('no chunk')
  return chunk
}

const TOKENS = ['', 'a', ' the', '"', '\n\n', 'é', '日本', '👋', ' internationalization', '\\\\\\\\', 'x'.repeat(13)]

test('goal: the role, every usual token and the end have one size, and so has the usage', () => {
  const sizes = new Set<number>()
  const chat = converterOf('chat', true, { stream_options: { include_usage: true } })
  sizes.add(utf8(chunkOf(chat, { delta: { role: 'assistant' } })).length)
  for (const content of TOKENS) sizes.add(utf8(chunkOf(chat, { delta: { content } })).length)
  sizes.add(utf8(chunkOf(chat, { delta: {}, finish_reason: 'length' })).length)
  sizes.add(utf8(chat.usageChunk({ prompt_tokens: 7, completion_tokens: 12_345, total_tokens: 12_352 })).length)
  expect(sizes.size).toBe(1)
  const text = converterOf('text_completion')
  expect(new Set(TOKENS.map(token => utf8(chunkOf(text, { text: token })).length)).size).toBe(1)
})

test('goal: longer chunks go up in steps of 32 bytes, and padding is never more than a step and the empty chunk', () => {
  const [padded, plain] = [converterOf('chat'), converterOf('chat', false)]
  for (const converter of [padded, plain]) chunkOf(converter, { delta: { role: 'assistant' } })
  const base = utf8(chunkOf(padded, { delta: { content: 'a' } })).length
  for (let length = 0; length < 300; length += 1) {
    const delta = { content: 'x'.repeat(length) }
    const bytes = utf8(chunkOf(padded, { delta })).length
    expect((bytes - base) % 32).toBe(0)
    expect(bytes - utf8(chunkOf(plain, { delta })).length).toBeLessThanOrEqual(32 + ',"obfuscation":""'.length)
  }
})

test('goal: without the padding a chunk is what it would have been, and the padding is never the same', () => {
  const [padded, plain] = [converterOf('chat'), converterOf('chat', false)]
  const seen = new Set<string>()
  for (const content of TOKENS) {
    const { obfuscation, ...rest } = JSON.parse(chunkOf(padded, { delta: { content } }))
    expect(rest).toEqual(JSON.parse(chunkOf(plain, { delta: { content } })))
    expect(obfuscation).toMatch(/^[A-Za-z0-9_-]+$/)
    seen.add(obfuscation)
  }
  expect(seen.size).toBe(TOKENS.length)
})

test('goal: include_obfuscation is a flag, of streams alone', () => {
  const parse = (stream_options: unknown, stream = true) =>
    parseRequest(
      'chat',
      utf8(JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'x' }], stream, stream_options })),
    ).request.includeObfuscation
  expect([parse({}), parse(null), parse({ include_obfuscation: null })]).toEqual([null, null, null])
  expect([parse({ include_obfuscation: true }), parse({ include_obfuscation: false })]).toEqual([true, false])
  expect(() => parse({ include_obfuscation: 1 })).toThrow('stream_options.include_obfuscation')
  expect(() => parse({ include_obfuscation: true }, false)).toThrow('stream_options')
})
