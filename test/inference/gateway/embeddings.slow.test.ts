// Embeddings over HTTP: the official client, misbehaving upstreams, and all of the gateway's rules.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import OpenAI from 'openai'
import {
  base64Of,
  EMBEDDING_MODEL,
  embeddingsUpstream,
  vectorOf,
} from '../../../scripts/rigs/gateway/embeddings-upstream.ts'
import { postEncrypted } from '../../../scripts/rigs/gateway/encrypted-client.ts'
import { KEY, LIMITS, MODEL, startGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { chargedTo, needsHost, viewOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import {
  sendJson,
  startUpstream,
  type TestUpstream,
  wellBehaved,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { readSalt } from '../../../src/attest/receipt/response-read.ts'
import { verifyResponse } from '../../../src/attest/receipt/response-verify.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { GatewayError } from '../../../src/contract/http/inference.ts'
import { upstreamIn } from '../../rigs/receipt-upstream.ts'

const EMBEDDINGS = '/v1/embeddings'
const embeds = { models: [EMBEDDING_MODEL, MODEL], embeddingModels: [EMBEDDING_MODEL] }

let upstream: TestUpstream
beforeEach(async () => {
  upstream = await startUpstream(embeddingsUpstream())
})
afterEach(() => upstream.stop())

const start = (options: Parameters<typeof startGateway>[1] = {}) =>
  startGateway([target(upstream.url, embeds)], options)
const bodyOf = (more: Record<string, unknown> = {}) => ({ model: EMBEDDING_MODEL, input: ['a', 'b'], ...more })
const embed = (gateway: TestGateway, more: Record<string, unknown> = {}, init: RequestInit = {}) =>
  gateway.post(EMBEDDINGS, bodyOf(more), init)

async function errorOf(answer: Response): Promise<GatewayError['error']> {
  const body: unknown = await answer.json()
  expect([...Value.Errors(GatewayError, body)]).toEqual([])
  return Value.Decode(GatewayError, body).error
}

describe('the official client', () => {
  test('goal: it gets every input’s numbers, whichever encoding it asks for, and each form of input', async () => {
    await using gateway = await start()
    const openai = new OpenAI({ apiKey: KEY, baseURL: `${gateway.url}/v1` })
    const vectors = [vectorOf(0), vectorOf(1)]
    // It asks for base64 by itself where nothing is said, and decodes it.
    for (const encoding of [{}, { encoding_format: 'float' }] as const) {
      const { data, model, usage } = await openai.embeddings.create({ ...bodyOf(), ...encoding })
      expect(data.map(({ index, embedding }) => [index, [...embedding].map(Math.fround)])).toEqual(
        vectors.map((vector, at) => [at, vector]),
      )
      expect([model, usage]).toEqual([EMBEDDING_MODEL, { prompt_tokens: 6, total_tokens: 6 }])
    }
    const raw = await openai.embeddings.create({ ...bodyOf(), encoding_format: 'base64' })
    expect(raw.data.map(({ embedding }) => embedding as unknown)).toEqual(vectors.map(base64Of))
    for (const [input, count] of [
      ['one', 1],
      [[1, 2, 3], 1],
      [[[1], [2, 3], [4]], 3],
    ] as const) {
      const answer = await openai.embeddings.create({ model: EMBEDDING_MODEL, input: input as string, dimensions: 2 })
      expect([answer.data.length, answer.data[0]?.embedding.length]).toEqual([count, 2])
    }
    expect(upstream.seen.map(seen => [seen.path, seen.body.encoding_format])).toEqual(
      Array(6).fill(['/v1/embeddings', 'base64']),
    )
  })
})

describe('which endpoint a model has', () => {
  test('goal: the other one is a 400 that names the right one, and no upstream is asked', async () => {
    await using gateway = await start()
    const messages = [{ role: 'user', content: 'Hi' }]
    const rows = [
      [EMBEDDINGS, { model: MODEL, input: 'a' }, 400, '/v1/chat/completions'],
      ['/v1/chat/completions', { model: EMBEDDING_MODEL, messages }, 400, EMBEDDINGS],
      ['/v1/completions', { model: EMBEDDING_MODEL, prompt: 'a' }, 400, EMBEDDINGS],
      ['/v1/responses', { model: EMBEDDING_MODEL, input: 'a' }, 400, EMBEDDINGS],
      [EMBEDDINGS, { model: 'nothing', input: 'a' }, 404, '/v1/models'],
    ] as const
    for (const [path, body, status, named] of rows) {
      const answer = await gateway.post(path, body)
      expect([path, answer.status]).toEqual([path, status])
      const error = await errorOf(answer)
      expect(error.message).toContain(named)
      expect(error.param).toBe(status === 400 ? 'model' : null)
    }
    expect(upstream.seen).toEqual([])
    upstream.behave = wellBehaved
    expect((await gateway.chat()).status).toBe(200)
  })

  const noAlias = needsHost('no alias leads to an upstream outside where a worker is inside')
  test.skipIf(noAlias)(
    'goal: a key may have a name of its own for it, and the upstream gets its id; what the key may not use is a 404',
    async () => {
      const aliases = [{ name: 'text-embedding-3-small', model: EMBEDDING_MODEL }]
      await using gateway = await start({ caller: { rules: { models: [EMBEDDING_MODEL], aliases } } })
      const answer = await embed(gateway, { model: 'text-embedding-3-small' })
      expect(await answer.json()).toMatchObject({ model: EMBEDDING_MODEL })
      expect(upstream.seen.map(seen => seen.body.model)).toEqual([EMBEDDING_MODEL])
      await using other = await start({ caller: { rules: { models: [MODEL], aliases: null } } })
      expect((await embed(other)).status).toBe(404)
    },
  )

  test('goal: the list of models has both', async () => {
    await using gateway = await start()
    const list = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${KEY}` } })
    const { data } = (await list.json()) as { data: { id: string }[] }
    expect(data.map(({ id }) => id)).toEqual([...gateway.models])
  })
})

describe('what the gateway does with all requests', () => {
  test('goal: prompt tokens are in the books, before the client has the answer, and charged to the key', async () => {
    await using gateway = await start()
    await (await embed(gateway)).text()
    expect(
      (await gateway.records()).map(record => [record.model, record.tokens, record.tokensSource, record.outcome]),
    ).toEqual([[EMBEDDING_MODEL, { prompt: 6, completion: 0 }, 'reported', 'completed']])
    expect(await chargedTo(gateway, KEY)).toEqual({ requests: 1, tokens: 6 })
    expect(await gateway.metrics()).toContain('gen_ai_operation_name="embeddings"')
  })

  test('goal: a body without a good key, too large, or past a limit is refused as everywhere', async () => {
    await using gateway = await start({ caller: { requestsPerMinute: 3 } })
    expect((await embed(gateway, {}, { headers: { authorization: 'Bearer x' } })).status).toBe(401)
    expect((await embed(gateway, { input: 'x'.repeat(LIMITS.bodyBytesMax) })).status).toBe(413)
    expect((await errorOf(await embed(gateway, { input: '' }))).param).toBe('input')
    const statuses = []
    for (let at = 0; at < 3; at += 1) statuses.push((await embed(gateway)).status)
    expect(statuses).toEqual([200, 200, 429])
  })

  test('goal: fields that no upstream gets are named, or refused, as configured', async () => {
    await using gateway = await start()
    const answer = await embed(gateway, { truncate: true, metadata: {} })
    expect(answer.headers.get('x-strongroom-ignored')).toBe('truncate, metadata')
    expect(upstream.seen[0]?.body).toEqual({ ...bodyOf(), encoding_format: 'base64' })
    await using strict = await start({ limits: { refusesUnknownFields: true } })
    expect((await errorOf(await embed(strict, { truncate: true }))).param).toBe('truncate')
    expect((await embed(strict)).status).toBe(200)
  })

  test('goal: a receipt covers the very bytes, carried or kept', async () => {
    await using gateway = await start()
    for (const word of ['1', 'keep']) {
      for (const encoding_format of ['float', 'base64']) {
        const answer = await embed(gateway, { encoding_format }, { headers: { 'x-strongroom-receipt': word } })
        const response = new Uint8Array(await answer.arrayBuffer())
        const auth = { headers: { authorization: `Bearer ${KEY}` } }
        const kept = await fetch(`${gateway.url}/v1/receipts/${answer.headers.get('x-request-id')}`, auth)
        const receipt = answer.headers.get('x-strongroom-receipt') ?? (await kept.text())
        expect(answer.headers.has('x-strongroom-receipt')).toBe(word === '1')
        const salt = answer.headers.get('x-strongroom-receipt-salt')
        const { ok, claim } = await verifyResponse(receipt, {
          salt: salt === null ? undefined : readSalt(salt),
          keys: await gateway.publicKeys(),
          response,
          outside: [upstreamIn(receipt)],
          request: utf8(JSON.stringify(bodyOf({ encoding_format }))),
        })
        expect([ok, claim?.model, claim?.promptTokens, claim?.completionTokens]).toEqual([true, EMBEDDING_MODEL, 6, 0])
      }
    }
  })

  test('goal: an encrypted request gets the same, encrypted', async () => {
    await using gateway = await start()
    const encrypted = await postEncrypted(gateway, EMBEDDINGS, bodyOf())
    expect(encrypted.response.status).toBe(200)
    expect(encrypted.response.headers.get('ehbp-response-nonce')).toMatch(/^[0-9a-f]{64}$/)
    expect(await encrypted.text()).toBe(await (await embed(gateway)).text())
  })

  test('goal: a client that leaves pays for its prompt, and the upstream is let go', async () => {
    const asked = Promise.withResolvers<void>()
    let left: Promise<void> = Promise.resolve()
    upstream.behave = (_response, _seen, gone) => {
      left = gone
      asked.resolve()
    }
    await using gateway = await start()
    const leaving = new AbortController()
    const answer = embed(gateway, {}, { signal: leaving.signal }).catch(() => null)
    await asked.promise
    leaving.abort()
    await answer
    await left
    // Nobody waits for the end of a client that has gone: its row may come a moment after the upstream was let go.
    await until('its row is there', 15_000, async () => (await gateway.records()).length > 0)
    const prompt = Math.ceil(JSON.stringify(bodyOf()).length / 4)
    expect((await gateway.records()).map(record => [record.tokens, record.outcome])).toEqual([
      [{ prompt, completion: 0 }, 'aborted'],
    ])
  })
})

describe('an upstream that misbehaves', () => {
  test('goal: its failure is a 502 without its words, costs nothing, and another upstream of the model is asked', async () => {
    const other = await startUpstream(embeddingsUpstream())
    await using stop = new AsyncDisposableStack()
    stop.defer(other.stop)
    const broken: [what: string, behave: TestUpstream['behave']][] = [
      ['status 500', response => sendJson(response, 500, { error: 'engine words' })],
      ['no such route', response => sendJson(response, 404, {})],
      ['not implemented', response => sendJson(response, 501, {})],
      ['another type', response => void response.writeHead(200, { 'content-type': 'text/html' }).end('engine words')],
      ['one vector too few', embeddingsUpstream(answer => ({ ...answer, data: (answer.data as []).slice(1) }))],
      ['another order', embeddingsUpstream(answer => ({ ...answer, data: [...(answer.data as [])].reverse() }))],
      [
        'no number',
        embeddingsUpstream(answer => JSON.stringify(answer).replace(/"embedding":".{6}/, '"embedding":"AADAfx')),
      ],
      ['a cut body', response => void response.writeHead(200, { 'content-type': 'application/json' }).end('{"data":[')],
    ]
    const limits = { ejectFailures: 1000 }
    await using alone = await start({ limits })
    const upstreams = [
      target(upstream.url, { ...embeds, name: 'broken', weight: 1000 }),
      target(other.url, { ...embeds, name: 'other' }),
    ]
    await using both = await startGateway(upstreams, { limits })
    for (const [what, behave] of broken) {
      upstream.behave = behave
      const failed = await embed(alone)
      expect([what, failed.status]).toEqual([what, 502])
      expect((await errorOf(failed)).message).not.toMatch(/engine[-_]|leaky/)
      const asked = upstream.seen.length
      expect([what, (await embed(both)).status]).toEqual([what, 200])
      expect(upstream.seen.length).toBe(asked + 1)
    }
    const failures = (await alone.records()).map(({ tokens, outcome }) => ({ tokens, outcome }))
    expect(failures).toEqual(broken.map(() => ({ tokens: { prompt: 0, completion: 0 }, outcome: 'failed' })))
    expect((await both.records()).map(record => record.upstream)).toEqual(broken.map(() => 'other'))
  })

  test('goal: no client gets an upstream ejected by what it asks for: sizes, dimensions, endpoints', async () => {
    await using gateway = await start({ limits: { ejectFailures: 1 } })
    const large = embeddingsUpstream(answer => ({ ...answer, padding: 'x'.repeat(LIMITS.responseBytesMax) }))
    const fixed = embeddingsUpstream(answer => ({
      ...answer,
      data: (answer.data as object[]).map(item => ({ ...item, embedding: 'AACAPw==' })),
    }))
    const rows: [
      behave: TestUpstream['behave'],
      more: Record<string, unknown>,
      status: number,
      param: string | null,
    ][] = [
      [large, {}, 400, 'input'],
      [embeddingsUpstream(), { input: Array(64).fill('a'), dimensions: 4_096 }, 400, 'input'],
      [fixed, { dimensions: 2 }, 502, null],
      [response => sendJson(response, 501, {}), {}, 502, null],
      [response => sendJson(response, 400, { error: { message: 'engine words' } }), {}, 400, null],
    ]
    for (const [behave, more, status, param] of rows) {
      upstream.behave = behave
      const answer = await embed(gateway, more)
      const error = await errorOf(answer)
      expect([answer.status, error.param, answer.headers.get('x-should-retry')]).toEqual([status, param, 'false'])
      expect((await viewOf(gateway)).targets[0]).toEqual({ active: 0, ejected: false })
    }
  })

  test('goal: one that sends without end for few inputs is at fault itself', async () => {
    await using gateway = await start({ limits: { responseBytesMax: 33_554_432 } })
    upstream.behave = embeddingsUpstream(answer => ({ ...answer, padding: 'x'.repeat(2_000_000) }))
    expect((await embed(gateway)).status).toBe(502)
    expect((await gateway.log()).join()).toContain('too_large')
  })

  test('goal: what it says of tokens that cannot be is not billed', async () => {
    upstream.behave = embeddingsUpstream(answer => ({
      ...answer,
      usage: { prompt_tokens: 1_000_000, total_tokens: 1_000_000 },
    }))
    await using gateway = await start()
    const { usage } = (await (await embed(gateway)).json()) as { usage: unknown }
    const prompt = Math.ceil(JSON.stringify(bodyOf()).length / 4)
    expect(usage).toEqual({ prompt_tokens: prompt, total_tokens: prompt })
    expect((await gateway.records()).map(record => [record.tokens.prompt, record.tokensSource])).toEqual([
      [prompt, 'implausible'],
    ])
  })
})

// Goal: an engine that reports 0 tokens, as old versions of llama-server do, is charged by the estimate.
test('zero tokens', async () => {
  await using gateway = await start()
  for (const usage of [{ prompt_tokens: 0, total_tokens: 0 }, { total_tokens: 0 }, {}, undefined]) {
    upstream.behave = embeddingsUpstream(answer => ({ ...answer, usage }))
    const body = bodyOf()
    const prompt = Math.ceil(JSON.stringify(body).length / 4)
    const { usage: shown } = (await (await gateway.post(EMBEDDINGS, body)).json()) as { usage: unknown }
    expect(shown).toEqual({ prompt_tokens: prompt, total_tokens: prompt })
    expect((await gateway.records()).at(-1)).toMatchObject({
      tokens: { prompt, completion: 0 },
      tokensSource: 'estimated',
    })
  }
})

const noNative = needsHost('an engine of its own kind')
// Goal: text-embeddings-inference gets `inputs` at /embed, in each form of input, and answers with lists of numbers.
test.skipIf(noNative)('text-embeddings-inference', async () => {
  const root = upstream.url.replace(/\/v1$/, '')
  const native = target(root, { ...embeds, models: [EMBEDDING_MODEL], engine: 'text-embeddings-inference' })
  await using gateway = await startGateway([native], { limits: { ejectFailures: 1_000 } })
  for (const [input, count, dimensions] of [
    ['one', 1, undefined],
    [['a', 'b'], 2, 2],
    [[1, 2, 3], 1, undefined],
    [[[1], [2, 3]], 2, undefined],
  ] as const) {
    const vectors = Array.from({ length: count }, (_, at) => vectorOf(at, dimensions ?? 4))
    upstream.behave = response => sendJson(response, 200, vectors)
    const answer = await embed(gateway, { input, dimensions, encoding_format: 'base64', user: 'u' })
    expect([answer.status, answer.headers.get('x-strongroom-ignored')]).toEqual([200, 'user'])
    const { data } = (await answer.json()) as { data: { index: number; embedding: string }[] }
    expect(data.map(({ index, embedding }) => [index, embedding])).toEqual(
      vectors.map((vector, at) => [at, base64Of(vector)]),
    )
    expect([upstream.seen.at(-1)?.path, upstream.seen.at(-1)?.body]).toEqual([
      '/embed',
      { inputs: input, ...(dimensions === undefined ? {} : { dimensions }) } as never,
    ])
    expect((await gateway.records()).at(-1)).toMatchObject({ tokensSource: 'estimated', outcome: 'completed' })
  }
  // It says in a header how many tokens it has counted.
  for (const [said, tokens, tokensSource] of [
    ['5', 5, 'reported'],
    ['0', null, 'estimated'],
    ['5.5', null, 'estimated'],
    ['1000000', null, 'implausible'],
  ] as const) {
    upstream.behave = response => {
      response.setHeader('x-compute-tokens', said)
      sendJson(response, 200, [vectorOf(0)])
    }
    const asked = { model: EMBEDDING_MODEL, input: 'one' }
    const prompt = tokens ?? Math.ceil(JSON.stringify(asked).length / 4)
    const { usage } = (await (await gateway.post(EMBEDDINGS, asked)).json()) as { usage: unknown }
    expect([said, usage]).toEqual([said, { prompt_tokens: prompt, total_tokens: prompt }])
    expect((await gateway.records()).at(-1)).toMatchObject({ tokens: { prompt, completion: 0 }, tokensSource })
  }
  for (const broken of [[[1, 2]], [[1, 2], [3]], [[1, 2], 'x'], [[], []], { error: 'x', error_type: 'Backend' }]) {
    upstream.behave = response => sendJson(response, 200, broken)
    expect([broken, (await embed(gateway)).status]).toEqual([broken, 502])
  }
})
