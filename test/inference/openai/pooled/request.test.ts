// Requests for embeddings: what is taken, what is refused and by which field, and what of it an upstream gets.

import { describe, expect, test } from 'bun:test'
import { utf8 } from '../../../../src/base/bytes.ts'
import { Fault } from '../../../../src/base/fault.ts'
import { ENGINES } from '../../../../src/config/upstream/kinds.ts'
import { embeddingsUpstreamBody, parseEmbeddingsRequest } from '../../../../src/inference/openai/pooled/request.ts'

const parse = (body: unknown) => parseEmbeddingsRequest(utf8(typeof body === 'string' ? body : JSON.stringify(body)))

const good = { model: 'e', input: 'a' }

function paramOf(body: unknown): string | null | undefined {
  try {
    parse(body)
  } catch (error) {
    expect(error).toBeInstanceOf(Fault)
    if (error instanceof Fault) {
      expect(error.code).toBe('invalid_request')
      return error.param ?? null
    }
  }
  return undefined
}

describe('a request', () => {
  test('goal: every form of input is taken, and counted', () => {
    const rows: [input: unknown, count: number][] = [
      ['a', 1],
      [' ', 1],
      [['a'], 1],
      [['a', 'b', 'ü👋'], 3],
      [[1, 2, 3], 1],
      [[0], 1],
      [Array(5_000).fill(7), 1],
      [[[1], [2, 3]], 2],
      [Array(2_048).fill('a'), 2_048],
      [Array(2_048).fill([1]), 2_048],
    ]
    for (const [input, count] of rows) expect(parse({ ...good, input }).request.inputCount).toBe(count)
  })

  test('goal: encoding and dimensions are as asked; null counts as absent', () => {
    expect(parse(good).request).toEqual({
      model: 'e',
      inputCount: 1,
      encoding: 'float',
      dimensions: null,
      cacheSalt: null,
    })
    const nulls = { ...good, encoding_format: null, dimensions: null, user: null }
    expect(parse(nulls).request).toEqual(parse(good).request)
    expect(parse({ ...good, encoding_format: 'base64', dimensions: 16_384 }).request).toMatchObject({
      encoding: 'base64',
      dimensions: 16_384,
    })
  })

  test('goal: everything else is refused, with the field that is wrong', () => {
    const rows: [change: Record<string, unknown>, param: string][] = [
      [{ model: undefined }, 'model'],
      [{ model: '' }, 'model'],
      [{ model: ['e'] }, 'model'],
      [{ input: undefined }, 'input'],
      [{ input: null }, 'input'],
      [{ input: '' }, 'input'],
      [{ input: 5 }, 'input'],
      [{ input: {} }, 'input'],
      [{ input: [] }, 'input'],
      [{ input: [''] }, 'input[0]'],
      [{ input: ['a', ''] }, 'input[1]'],
      [{ input: ['a', 1] }, 'input[1]'],
      [{ input: ['a', ['b']] }, 'input[1]'],
      [{ input: [1, 'a'] }, 'input[0]'],
      [{ input: [1, -1] }, 'input[0]'],
      [{ input: [1.5] }, 'input[0]'],
      [{ input: [2 ** 32] }, 'input[0]'],
      [{ input: [[1], []] }, 'input[1]'],
      [{ input: [[1], [[1]]] }, 'input[1]'],
      [{ input: [[1], 'a'] }, 'input[1]'],
      [{ input: [{ type: 'text', text: 'a' }] }, 'input[0]'],
      [{ input: Array(2_049).fill('a') }, 'input'],
      [{ input: Array(2_049).fill([1]) }, 'input'],
      [{ encoding_format: 'int8' }, 'encoding_format'],
      [{ encoding_format: ['float'] }, 'encoding_format'],
      [{ dimensions: 0 }, 'dimensions'],
      [{ dimensions: 16_385 }, 'dimensions'],
      [{ dimensions: 1.5 }, 'dimensions'],
      [{ dimensions: '8' }, 'dimensions'],
      [{ user: 5 }, 'user'],
      [{ user: 'x'.repeat(257) }, 'user'],
      [{ cache_salt: '' }, 'cache_salt'],
      [{ cache_salt: 'x'.repeat(257) }, 'cache_salt'],
      [{ cache_salt: 5 }, 'cache_salt'],
    ]
    for (const [change, param] of rows) expect([change, paramOf({ ...good, ...change })]).toEqual([change, param])
  })

  test('goal: what is no JSON object, or has a field twice, is refused as a whole', () => {
    for (const text of ['', '[]', '"a"', '{', '{"model":"e","input":"a","input":"b"}']) {
      expect(paramOf(text)).not.toBeUndefined()
    }
    expect(() => parseEmbeddingsRequest(new Uint8Array([0x22, 0xff, 0x22]))).toThrow('UTF-8')
  })
})

describe('what an upstream gets', () => {
  const bodyFor = (body: unknown, engine: (typeof ENGINES)[number]) =>
    embeddingsUpstreamBody(parse(body), { engine, cacheSalt: () => 'salt' })

  test('goal: the checked members, base64 whatever the client wants, a salt where the engine has one, and no other field', () => {
    const body = {
      encoding_format: 'float',
      model: 'e',
      store: true,
      input: ['ä', 'b'],
      cache_salt: 'mine',
      dimensions: 8,
      user: 'u',
      truncate_prompt_tokens: 1,
      prompt: 'x',
    }
    const sent = { model: 'e', input: ['ä', 'b'], dimensions: 8, user: 'u', encoding_format: 'base64' }
    for (const engine of ENGINES.filter(engine => engine !== 'text-embeddings-inference')) {
      const { text, ignored } = bodyFor(body, engine)
      const isSalted = engine === 'vllm' || engine === 'sglang'
      expect([engine, JSON.parse(text)]).toEqual([engine, isSalted ? { ...sent, cache_salt: 'salt' } : sent])
      const salt = engine === 'openai' ? ['cache_salt'] : []
      expect(ignored).toEqual(['store', ...salt, 'truncate_prompt_tokens', 'prompt'])
    }
  })

  test('goal: fields that are null, or named with escapes, are what they are', () => {
    expect(JSON.parse(bodyFor({ ...good, dimensions: null, user: null }, 'openai').text)).toEqual({
      ...good,
      encoding_format: 'base64',
    })
    const { text } = bodyFor('{"mod\\u0065l":"e", "input" : [1, 2] ,"encoding_form\\u0061t":"float"}', 'openai')
    expect(JSON.parse(text)).toEqual({ model: 'e', input: [1, 2], encoding_format: 'base64' })
  })
})
