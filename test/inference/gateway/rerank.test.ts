// POST /v1/rerank: the forms of the engines, what is refused by which field, and the gateway's rules for every request.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { EMBEDDING_MODEL } from '../../../scripts/rigs/gateway/embeddings-upstream.ts'
import { postEncrypted } from '../../../scripts/rigs/gateway/encrypted-client.ts'
import { KEY, MODEL, startGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { chargedTo, needsHost } from '../../../scripts/rigs/gateway/test-gateway.ts'
import {
  type Behaviour,
  sendJson,
  startUpstream,
  type TestUpstream,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { verifyResponse } from '../../../src/attest/receipt/response-verify.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { upstreamIn } from '../../rigs/receipt-upstream.ts'

const path = '/v1/rerank'
const embeds = { models: [EMBEDDING_MODEL, MODEL], embeddingModels: [EMBEDDING_MODEL] }
const documents = ['a car', 'a "panda" ü👋', 'a bear']
const ask = (more: object = {}) => ({ model: EMBEDDING_MODEL, query: 'panda?', documents, ...more })
const scores = [0.1, 0.9, 0.5]

const sends =
  (answer: unknown): Behaviour =>
  response =>
    sendJson(response, 200, answer)

const llamaServer = {
  model: 'x.gguf',
  object: 'list',
  usage: { prompt_tokens: 21, total_tokens: 21 },
  results: scores.map((score, index) => ({ index, relevance_score: score })),
}
/** Sorted, with documents; older versions have the total alone. */
const vllm = {
  id: 'rerank-1',
  model: 'x',
  usage: { total_tokens: 21 },
  results: [1, 2, 0].map(index => ({ index, document: { text: documents[index] }, relevance_score: scores[index] })),
}
const sglang = [1, 2, 0].map(index => ({
  score: scores[index],
  document: documents[index],
  index,
  meta_info: { id: 'x', prompt_tokens: 7 },
}))

let upstream: TestUpstream
beforeEach(async () => {
  upstream = await startUpstream(sends(llamaServer))
})
afterEach(() => upstream.stop())

const start = (options: Parameters<typeof startGateway>[1] = {}) =>
  startGateway([target(upstream.url, embeds)], options)

async function errorOf(answer: Response) {
  const { error } = (await answer.json()) as { error: { message: string; param: string | null } }
  return { status: answer.status, ...error }
}

const ranked = [
  { index: 1, relevance_score: 0.9 },
  { index: 2, relevance_score: 0.5 },
  { index: 0, relevance_score: 0.1 },
]

// Goal: each engine's form becomes one form, sorted, and its count of tokens is booked.
test('engines', async () => {
  await using gateway = await start()
  for (const answer of [llamaServer, vllm, sglang]) {
    upstream.behave = sends(answer)
    const response = await gateway.post(path, ask())
    expect([response.status, await response.json()]).toEqual([
      200,
      { object: 'list', model: EMBEDDING_MODEL, results: ranked, usage: { prompt_tokens: 21, total_tokens: 21 } },
    ])
  }
  expect(upstream.seen.map(({ path: sent, body }) => [sent, body])).toEqual(
    Array(3).fill(['/v1/rerank', { model: EMBEDDING_MODEL, query: 'panda?', documents, return_documents: false }]),
  )
  expect((await gateway.records()).map(({ tokens, tokensSource, outcome }) => [tokens, tokensSource, outcome])).toEqual(
    Array(3).fill([{ prompt: 21, completion: 0 }, 'reported', 'completed']),
  )
  expect(await gateway.metrics()).toContain('gen_ai_operation_name="rerank"')
})

// Goal: top_n cuts, and documents that come back are the client's own text, from a body that a thread parses too.
test('top_n and return_documents', async () => {
  await using gateway = await start({ limits: { bodyBytesMax: 2_000_000, responseBytesMax: 4_000_000 } })
  for (const long of ['', ' '.repeat(200_000)]) {
    const texts = documents.map(text => text + long)
    const response = await gateway.post(path, ask({ documents: texts, top_n: 2, return_documents: true }))
    const { results } = (await response.json()) as { results: unknown }
    expect(results).toEqual([
      { index: 1, relevance_score: 0.9, document: { text: texts[1] } },
      { index: 2, relevance_score: 0.5, document: { text: texts[2] } },
    ])
    expect(upstream.seen.at(-1)?.body).toEqual({
      model: EMBEDDING_MODEL,
      query: 'panda?',
      documents: texts,
      return_documents: false,
    })
  }
})

// Goal: an engine that does not count, or counts what cannot be, is charged by the estimate: the query counts once for
// each document.
test('estimates', async () => {
  await using gateway = await start()
  const query = 'q'.repeat(400)
  const size = JSON.stringify(ask({ query })).length
  const prompt = Math.ceil((size + Buffer.byteLength('ü👋') - 'ü👋'.length) / 4) + 200
  for (const [usage, source] of [
    [undefined, 'estimated'],
    [{ prompt_tokens: 0, total_tokens: 0 }, 'estimated'],
    [{ total_tokens: 1_000_000 }, 'implausible'],
  ] as const) {
    upstream.behave = sends({ ...llamaServer, usage })
    const { usage: told } = (await (await gateway.post(path, ask({ query }))).json()) as { usage: unknown }
    expect(told).toEqual({ prompt_tokens: prompt, total_tokens: prompt })
    expect((await gateway.records()).at(-1)).toMatchObject({ tokens: { prompt, completion: 0 }, tokensSource: source })
  }
})

// Goal: what no engine could rank is refused by its field, and nothing goes up.
test('refusals', async () => {
  await using gateway = await start({ limits: { refusesUnknownFields: true } })
  for (const [more, status, param] of [
    [{ query: '' }, 400, 'query'],
    [{ query: ['a'] }, 400, 'query'],
    [{ documents: [] }, 400, 'documents'],
    [{ documents: 'a' }, 400, 'documents'],
    [{ documents: Array(2_049).fill('a') }, 400, 'documents'],
    [{ documents: ['a', ''] }, 400, 'documents[1]'],
    [{ documents: [{ text: 'a' }] }, 400, 'documents[0]'],
    [{ top_n: 0 }, 400, 'top_n'],
    [{ return_documents: 'yes' }, 400, 'return_documents'],
    [{ max_chunks_per_doc: 3 }, 400, 'max_chunks_per_doc'],
    [{ model: MODEL }, 400, 'model'],
    [{ model: 'nothing' }, 404, null],
  ] as const) {
    expect(await errorOf(await gateway.post(path, ask(more)))).toMatchObject({ status, param })
  }
  expect(upstream.seen).toEqual([])
  const messages = [{ role: 'user', content: 'Hi' }]
  const chat = await errorOf(await gateway.post('/v1/chat/completions', { model: EMBEDDING_MODEL, messages }))
  expect(chat.message).toContain('/v1/rerank')
})

// Goal: a ranking that lacks a document, has one twice or a score that is none is a 502 and costs nothing.
test('broken engines', async () => {
  await using gateway = await start({ limits: { ejectFailures: 1_000 } })
  const broken: unknown[] = [
    { ...llamaServer, results: llamaServer.results.slice(1) },
    { ...llamaServer, results: [...llamaServer.results.slice(1), { index: 1, relevance_score: 1 }] },
    { ...llamaServer, results: [...llamaServer.results.slice(1), { index: 3, relevance_score: 1 }] },
    { ...llamaServer, results: [...llamaServer.results.slice(1), { index: 0, relevance_score: null }] },
    { results: {} },
    'x',
  ]
  for (const answer of broken) {
    upstream.behave = sends(answer)
    expect([answer, (await gateway.post(path, ask())).status]).toEqual([answer, 502])
  }
  expect((await gateway.records()).map(({ tokens }) => tokens.prompt)).toEqual(broken.map(() => 0))
})

// Goal: a ranking that would hold the thread while it is parsed is refused by its documents.
test('a long ranking', async () => {
  await using gateway = await start({ limits: { bodyBytesMax: 2_000_000, responseBytesMax: 16_000_000 } })
  upstream.behave = sends({ ...llamaServer, more: 'x'.repeat(5_000_000) })
  const answer = await gateway.post(path, ask({ documents: documents.map(text => text.padEnd(300_000)) }))
  expect(await errorOf(answer)).toMatchObject({ status: 400, param: 'documents' })
})

// Goal: limits and budgets hold: the key pays for what the engine reports, and a bad key learns nothing.
test('limits', async () => {
  await using gateway = await start({ caller: { requestsPerMinute: 2 } })
  expect((await gateway.post(path, ask(), { headers: { authorization: 'Bearer x' } })).status).toBe(401)
  const statuses = []
  for (let at = 0; at < 3; at += 1) statuses.push((await gateway.post(path, ask())).status)
  expect(statuses).toEqual([200, 200, 429])
  await using open = await start()
  await open.post(path, ask())
  expect(await chargedTo(open, KEY)).toEqual({ requests: 1, tokens: 21 })
  await using few = await start({ caller: { tokensPerMinute: 5_000 } })
  const query = 'q'.repeat(1_000)
  // The body is small; the query with each document is not.
  expect((await few.post(path, ask())).status).toBe(200)
  const answer = await few.post(path, ask({ query, documents: Array(100).fill('a') }))
  expect(answer.status).toBe(429)
})

// Goal: a receipt covers the very bytes, and an encrypted request gets the same ranking, encrypted.
test('receipts and encryption', async () => {
  await using gateway = await start()
  const body = ask({ return_documents: true })
  const answer = await gateway.post(path, body, { headers: { 'x-strongroom-receipt': '1' } })
  const response = new Uint8Array(await answer.arrayBuffer())
  const receipt = answer.headers.get('x-strongroom-receipt') ?? ''
  const { ok, claim } = await verifyResponse(receipt, {
    keys: await gateway.publicKeys(),
    response,
    outside: [upstreamIn(receipt)],
    request: utf8(JSON.stringify(body)),
  })
  expect([ok, claim?.model, claim?.promptTokens, claim?.completionTokens]).toEqual([true, EMBEDDING_MODEL, 21, 0])
  const encrypted = await postEncrypted(gateway, path, body)
  expect(await encrypted.text()).toBe(new TextDecoder().decode(response))
})

const noAlias = needsHost('no salt where a worker is inside')
// Goal: engines with a prompt cache get the salt of the key, and a client's own salt is not named as left out.
test.skipIf(noAlias)('cache salt', async () => {
  await using gateway: TestGateway = await startGateway([target(upstream.url, { ...embeds, engine: 'vllm' })])
  const answer = await gateway.post(path, ask({ cache_salt: 'mine', truncate: true }))
  expect([answer.status, answer.headers.get('x-strongroom-ignored')]).toEqual([200, 'truncate'])
  expect(upstream.seen[0]?.body.cache_salt).toMatch(/^[\w-]{43}$/)
})

const noNative = needsHost('an engine of its own kind')
// Goal: text-embeddings-inference gets its own fields at its own path, and its list without any count is a ranking that
// is charged by the estimate. The client reads the same form as from any other engine.
test.skipIf(noNative)('text-embeddings-inference', async () => {
  const root = upstream.url.replace(/\/v1$/, '')
  const native = target(root, { ...embeds, models: [EMBEDDING_MODEL], engine: 'text-embeddings-inference' })
  await using gateway: TestGateway = await startGateway([native])
  upstream.behave = sends([1, 2, 0].map(index => ({ index, score: scores[index] })))
  const body = ask({ return_documents: true, top_n: 2, user: 'u', cache_salt: 'mine' })
  const answer = await gateway.post(path, body)
  const prompt = Math.ceil(Buffer.byteLength(JSON.stringify(body)) / 4) + 3
  expect([answer.status, answer.headers.get('x-strongroom-ignored'), await answer.json()]).toEqual([
    200,
    'user',
    {
      object: 'list',
      model: EMBEDDING_MODEL,
      results: [
        { index: 1, relevance_score: 0.9, document: { text: documents[1] } },
        { index: 2, relevance_score: 0.5, document: { text: documents[2] } },
      ],
      usage: { prompt_tokens: prompt, total_tokens: prompt },
    },
  ])
  expect(upstream.seen.map(({ path: sent, body: got }) => [sent, got])).toEqual([
    ['/rerank', { query: 'panda?', texts: documents, return_text: false }],
  ])
  expect((await gateway.records()).at(-1)).toMatchObject({ tokensSource: 'estimated', outcome: 'completed' })
})
