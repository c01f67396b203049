// Answers with embeddings: what of an engine's passes, in which form a client gets it, and that others have their turn.

import { describe, expect, test } from 'bun:test'
import { base64Of, vectorOf } from '../../../../scripts/rigs/gateway/embeddings-upstream.ts'
import { Fault } from '../../../../src/base/fault.ts'
import { createCooperativeQueue } from '../../../../src/base/work/turns.ts'
import { UpstreamFault } from '../../../../src/inference/failure.ts'
import {
  type Embeddings,
  embeddingsUsageBounds,
  parseEmbeddings,
  writeEmbeddings,
} from '../../../../src/inference/openai/pooled/embeddings.ts'
import type { EmbeddingsRequest } from '../../../../src/inference/openai/pooled/request.ts'

const asked = (changes: Partial<EmbeddingsRequest> = {}): EmbeddingsRequest => ({
  model: 'e',
  inputCount: 2,
  encoding: 'float',
  dimensions: null,
  cacheSalt: null,
  ...changes,
})
const bounds = { promptTokensMax: 100, completionTokensMax: 0 }

function parsing(answer: unknown, changes: Partial<EmbeddingsRequest> = {}) {
  const text = typeof answer === 'string' ? answer : JSON.stringify(answer)
  return parseEmbeddings(text, asked(changes), { bounds, promptEstimate: 9 })
}

async function parse(answer: unknown, changes: Partial<EmbeddingsRequest> = {}): Promise<Embeddings> {
  return createCooperativeQueue()(parsing(answer, changes))
}

async function write(embeddings: Embeddings, changes: Partial<EmbeddingsRequest>, charsMax = 1e9): Promise<string> {
  const taken: string[] = []
  const take = (piece: string) => void taken.push(piece)
  const text = await createCooperativeQueue()(writeEmbeddings(embeddings, asked(changes), { charsMax, take }))
  expect(taken.join('')).toBe(text)
  return text
}

/** A response for two inputs. */
const answerOf = (...embeddings: unknown[]) => ({
  data: embeddings.map((embedding, index) => ({ object: 'embedding', index, embedding })),
  usage: { prompt_tokens: 5, total_tokens: 5 },
})
const [first, second] = [vectorOf(0), vectorOf(1)]

describe('a good answer', () => {
  test('goal: in either encoding of the engine it becomes what the client asked for, number by number', async () => {
    const answers = [
      answerOf(first, second),
      answerOf(base64Of(first), base64Of(second)),
      answerOf(first, base64Of(second)),
    ]
    for (const answer of answers) {
      const embeddings = await parse(answer)
      const floats = JSON.parse(await write(embeddings, {}))
      expect(floats).toEqual({
        object: 'list',
        data: [0, 1].map(index => ({ object: 'embedding', index, embedding: expect.any(Array) })),
        model: 'e',
        usage: { prompt_tokens: 5, total_tokens: 5 },
      })
      const exact = floats.data.map((item: { embedding: number[] }) => item.embedding.map(Math.fround))
      expect(exact).toEqual([first, second])
      const base64 = JSON.parse(await write(embeddings, { encoding: 'base64' }))
      expect(base64.data.map((item: { embedding: string }) => item.embedding)).toEqual([
        base64Of(first),
        base64Of(second),
      ])
    }
  })

  test('goal: every 32-bit float comes back from its decimals as it was', async () => {
    const bits = new Uint32Array(16_000)
    for (let at = 0; at < bits.length; at += 1) bits[at] = Math.imul(at + 1, 2_654_435_761) & 0xff7f_ffff
    const vector = [...new Float32Array(bits.buffer)].filter(Number.isFinite)
    vector.push(0, -0, 1.4e-45, 3.4028234663852886e38)
    const text = await write(await parse(answerOf(base64Of(vector)), { inputCount: 1 }), { inputCount: 1 })
    expect(base64Of(JSON.parse(text).data[0].embedding)).toBe(base64Of(vector.map(value => (value === 0 ? 0 : value))))
  })

  test('goal: indexes may be left out, and a model may have any name', async () => {
    const { data, ...rest } = answerOf(first, second)
    const embeddings = await parse({ ...rest, data: data.map(({ index: _, ...item }) => item) })
    expect(JSON.parse(await write(embeddings, { model: 'a "ü" \u2028' })).model).toBe('a "ü" \u2028')
  })

  test('goal: tokens are those of the prompt as the engine counted them, where that can be; else the estimate', async () => {
    const rows: [usage: unknown, prompt: number, source: string][] = [
      [{ prompt_tokens: 5, total_tokens: 5 }, 5, 'reported'],
      [{ prompt_tokens: 5, total_tokens: 5, prompt_tokens_details: { cached_tokens: 4 } }, 5, 'reported'],
      [{ prompt_tokens: 100, total_tokens: 100, completion_tokens: 0 }, 100, 'reported'],
      [{ prompt_tokens: 101, total_tokens: 101 }, 9, 'implausible'],
      [{ prompt_tokens: 5, completion_tokens: 1 }, 9, 'implausible'],
      [undefined, 9, 'estimated'],
      [null, 9, 'estimated'],
    ]
    for (const [usage, prompt, source] of rows) {
      const embeddings = await parse({ ...answerOf(first, second), usage })
      expect([usage, embeddings.tokens, embeddings.tokensSource as string]).toEqual([
        usage,
        { prompt, completion: 0 },
        source,
      ])
      expect(JSON.parse(await write(embeddings, {})).usage).toEqual({ prompt_tokens: prompt, total_tokens: prompt })
    }
  })

  test('goal: a prompt can have no more tokens than its bytes, what engines add, and the context', () => {
    const request = asked({ inputCount: 2_048 })
    expect(embeddingsUsageBounds(request, { bodyBytes: 10_000, contextTokens: null })).toEqual({
      promptTokensMax: 10_000 + 2_048 * 16 + 4_096,
      completionTokensMax: 0,
    })
    expect(embeddingsUsageBounds(request, { bodyBytes: 10_000_000, contextTokens: 512 }).promptTokensMax).toBe(
      1_048_576,
    )
  })
})

describe('an answer that misbehaves', () => {
  const nan = Buffer.from(new Float32Array([1, Number.NaN]).buffer).toString('base64')
  const endless = Buffer.from(new Float32Array([1, Number.NEGATIVE_INFINITY]).buffer).toString('base64')
  const good = answerOf(first, second)
  const rows: [what: string, answer: unknown][] = [
    ['no JSON', '{"data":['],
    ['no object', []],
    ['no data', { usage: good.usage }],
    ['data that is no list', { ...good, data: {} }],
    ['one too few', answerOf(first)],
    ['one too many', answerOf(first, second, first)],
    ['an item that is none', { ...good, data: [good.data[0], null] }],
    ['another order', { ...good, data: [...good.data].reverse() }],
    ['an index twice', { ...good, data: [good.data[0], good.data[0]] }],
    ['an index that is text', { ...good, data: [{ ...good.data[0], index: '0' }, good.data[1]] }],
    ['no embedding', answerOf(first, undefined)],
    ['an empty embedding', answerOf([], [])],
    ['an empty text', answerOf('', '')],
    ['different dimensions', answerOf(first, [...second, 1])],
    ['a vector for each token', answerOf([first], [second])],
    ['a text among the numbers', answerOf(first, [1, '2', 3, 4])],
    ['a null among the numbers', answerOf(first, [1, null, 3, 4])],
    ['a number beyond 32 bits', answerOf(first, [1, 2, 3, 1e39])],
    ['a number beyond 64 bits', JSON.stringify(good).replace('[0.1', '[1e999')],
    ['NaN in base64', answerOf(nan, nan)],
    ['an infinity in base64', answerOf(endless, endless)],
    ['base64 of half a number', answerOf('AAAAAAA=', 'AAAAAAA=')],
    ['base64 without padding', answerOf('AAAAAA', 'AAAAAA')],
    ['base64 with white space', answerOf('AAAA AA==', 'AAAA AA==')],
    ['base64 with bits left', answerOf('AAAAAB==', 'AAAAAB==')],
    ['base64 for URLs', answerOf('-_AAAA==', '-_AAAA==')],
    ['too many dimensions', answerOf(Array(16_385).fill(1), Array(16_385).fill(1))],
    ['too many dimensions in base64', answerOf(base64Of(Array(16_385).fill(1)), base64Of(Array(16_385).fill(1)))],
    ['usage that is none', { ...good, usage: { prompt_tokens: 'many' } }],
    ['usage that is negative', { ...good, usage: { prompt_tokens: -1 } }],
  ]
  for (const [what, answer] of rows) {
    test(`goal: ${what} is the upstream's failure`, async () => {
      const error = await parse(answer).then(
        () => null,
        thrown => thrown,
      )
      expect(error).toBeInstanceOf(UpstreamFault)
      expect(error.reason).toBe('malformed')
    })
  }

  test('goal: dimensions that the client asked for and the model does not give are no fault of the upstream’s health', async () => {
    expect((await parse(good, { dimensions: 4 })).vectors.length).toBe(2)
    const error = await parse(good, { dimensions: 3 }).catch(thrown => thrown)
    expect([error.reason, error.row.countsAgainstHealth, error.row.clientShouldRetry]).toEqual([
      'wrong_dimensions',
      false,
      false,
    ])
  })
})

describe('a large answer', () => {
  const vectors = (count: number, dimensions: number) =>
    answerOf(...Array.from({ length: count }, (_, at) => base64Of(vectorOf(at, dimensions))))

  test('goal: others have their turn while it is checked and while it is written', async () => {
    const inputCount = 256
    const answer = vectors(inputCount, 4_096)
    expect([...parsing(answer, { inputCount })].length).toBeGreaterThanOrEqual(8)
    const embeddings = await parse(answer, { inputCount })
    for (const [encoding, least] of [
      ['base64', 8],
      ['float', 128],
    ] as const) {
      const turns = writeEmbeddings(embeddings, asked({ inputCount, encoding }), { charsMax: 1e9, take: () => {} })
      expect([encoding, [...turns].length >= least]).toEqual([encoding, true])
    }
  })

  test('goal: decimals beyond what is parsed in one go, and a response beyond its bound, are for the client to ask less of', async () => {
    const inputCount = 64
    const tooLarge = (work: Promise<unknown>) =>
      expect(work).rejects.toMatchObject({ code: 'invalid_request', param: 'input' })
    const decimals = JSON.stringify(
      answerOf(...Array.from({ length: inputCount }, () => Array(16_384).fill(0.123456789))),
    )
    expect(decimals.length).toBeGreaterThan(8_388_608)
    await tooLarge(parse(decimals, { inputCount }))
    const embeddings = await parse(vectors(inputCount, 64), { inputCount })
    const { length } = await write(embeddings, { inputCount })
    expect((await write(embeddings, { inputCount }, length)).length).toBe(length)
    await tooLarge(write(embeddings, { inputCount }, length - 1))
    expect(await write(embeddings, { inputCount }, length - 1).catch(error => error)).toBeInstanceOf(Fault)
  })
})
