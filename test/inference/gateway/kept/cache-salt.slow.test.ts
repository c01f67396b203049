// Salts of prompt caches: response times tell the holder of one key nothing about the prompts of
// another.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { EMBEDDING_MODEL, embeddingsUpstream } from '../../../../scripts/rigs/gateway/embeddings-upstream.ts'
import { type EncryptedInit, postEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import { MODEL, target } from '../../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { epochHeader, staleEpoch } from '../../../../src/attest/ehbp/protocol.ts'
import { type RealGateway, startRealGateway } from '../../../rigs/gateway/real-gateway.ts'

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

const messages = [{ role: 'user', content: 'Hello' }]
const REQUESTS = [
  ['/v1/chat/completions', { messages }],
  ['/v1/completions', { prompt: 'Hello' }],
  ['/v1/responses', { input: 'Hello' }],
  ['/v1/messages', { messages, max_tokens: 10 }],
] as const
const own = 'a text that only this client has'

describe.each(['vllm', 'sglang'] as const)('%s', engine => {
  let gateway: RealGateway
  let saltOf: (key: string, path: string, fields: object) => Promise<unknown>

  beforeEach(async () => {
    gateway = undo.use(await startRealGateway([target(upstream.url, { engine })]))
    saltOf = async (key, path, fields) => {
      const answer = await gateway.post(path, { model: MODEL, ...fields }, { key })
      expect([answer.status, answer.headers.get('x-strongroom-ignored')]).toEqual([200, null])
      return upstream.seen.at(-1)?.body.cache_salt
    }
  })

  // Goal: a key that the host adds to an organization measures no cache of the organization's other
  // keys.
  test.each(REQUESTS)('%s: keys of one organization', async (path, fields) => {
    const [first, second] = [await gateway.addKey(), await gateway.addKey()]
    const salt = await saltOf(first, path, fields)
    expect(salt).toMatch(/^[\w-]{43}$/)
    expect(await saltOf(first, path, fields)).toBe(salt)
    expect(await saltOf(second, path, fields)).not.toBe(salt)
  })

  // Goal: under the very key, who lacks the client's own salt measures nothing; the salt itself
  // stays here.
  test.each(REQUESTS)('%s: salts of clients', async (path, fields) => {
    const key = await gateway.addKey()
    const salts = []
    for (const cache_salt of [undefined, own, `${own}.`, own]) {
      salts.push(await saltOf(key, path, { ...fields, cache_salt }))
    }
    const [without, salted, other, again] = salts
    expect(new Set([without, salted, other]).size).toBe(3)
    expect(again).toBe(salted)
    expect(JSON.stringify(upstream.seen)).not.toContain(own)
    const otherKey = await gateway.addKey()
    expect(await saltOf(otherKey, path, { ...fields, cache_salt: own })).not.toBe(salted)
  })

  // Goal: a party that ends TLS and sends a stock client's sealed body under its own key fills no
  // cache that it can measure. A bound body has the salt of its key.
  test.each(REQUESTS)('%s: sealed bodies', async (path, fields) => {
    const key = await gateway.addKey()
    const sealedSalt = async (init: EncryptedInit) => {
      const sealed = await postEncrypted(gateway, path, { model: MODEL, ...fields }, { key, ...init })
      await sealed.text()
      expect(sealed.response.status).toBe(200)
      return upstream.seen.at(-1)?.body.cache_salt
    }
    const plain = await saltOf(key, path, fields)
    // The refusal of an epoch that never was names the present one.
    const stale = await postEncrypted(gateway, path, { model: MODEL, ...fields }, { key, epoch: '00'.repeat(16) })
    expect(stale.response.status).toBe(422)
    const epoch = stale.headers.get(epochHeader)?.slice(staleEpoch.length) ?? ''
    const [first, second] = [await sealedSalt({}), await sealedSalt({})]
    expect(new Set([plain, first, second]).size).toBe(3)
    expect(await sealedSalt({ epoch })).toBe(plain)
  })
})

// Goal: the same holds for embeddings, whose engines may use the prompt cache, too.
test('embeddings', async () => {
  upstream.behave = embeddingsUpstream()
  const models = { models: [EMBEDDING_MODEL], embeddingModels: [EMBEDDING_MODEL] }
  const gateway = undo.use(await startRealGateway([target(upstream.url, { engine: 'vllm', ...models })]))
  const [first, second] = [await gateway.addKey(), await gateway.addKey()]
  const salts = []
  for (const [key, cache_salt] of [
    [first, undefined],
    [second, undefined],
    [first, own],
    [first, undefined],
  ] as const) {
    const answer = await gateway.post('/v1/embeddings', { model: EMBEDDING_MODEL, input: 'Hello', cache_salt }, { key })
    expect([answer.status, answer.headers.get('x-strongroom-ignored')]).toEqual([200, null])
    salts.push(upstream.seen.at(-1)?.body.cache_salt)
  }
  expect([new Set(salts).size, salts[3]]).toEqual([3, salts[0]])
  expect(JSON.stringify(upstream.seen)).not.toContain(own)
})

// Goal: all APIs check it, with the name of the field.
test.each(REQUESTS)('%s: what no salt is', async (path, fields) => {
  const gateway = undo.use(await startRealGateway([target(upstream.url, { engine: 'vllm' })]))
  const key = await gateway.addKey()
  for (const cache_salt of ['', 'x'.repeat(257), 5, true, {}, ['x']]) {
    const answer = await gateway.post(path, { model: MODEL, ...fields, cache_salt }, { key })
    const { error } = (await answer.json()) as { error: object }
    expect([answer.status, error]).toMatchObject([
      400,
      {
        code: 'invalid_request',
        param: 'cache_salt',
        message: 'cache_salt must be a string of 1 to 256 characters.',
      },
    ])
  }
  const longest = await gateway.post(path, { model: MODEL, ...fields, cache_salt: 'x'.repeat(256) }, { key })
  expect(longest.status).toBe(200)
  const none = await gateway.post(path, { model: MODEL, ...fields, cache_salt: null }, { key })
  expect(none.status).toBe(200)
})

// Goal: an engine that keeps no caches apart never gets it, and the client sees that it had no
// effect.
test.each([
  ['openai', {}, 'cache_salt'],
  ['llama-server', { cache_prompt: false }, null],
] as const)('%s', async (engine, sent, ignored) => {
  const gateway = undo.use(await startRealGateway([target(upstream.url, { engine })]))
  const key = await gateway.addKey()
  for (const [path, fields] of REQUESTS) {
    const answer = await gateway.post(path, { model: MODEL, ...fields, cache_salt: own }, { key })
    expect([answer.status, answer.headers.get('x-strongroom-ignored')]).toEqual([200, ignored])
    const body = upstream.seen.at(-1)?.body ?? {}
    expect(body).toMatchObject(sent)
    expect(JSON.stringify(body)).not.toContain('salt')
  }
})
