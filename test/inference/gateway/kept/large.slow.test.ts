// Requests of more than 128 KiB, which a thread parses: they keep responses and build on them as
// small ones do.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { ehbpKeys } from '../../../../scripts/rigs/gateway/ehbp.ts'
import { EMBEDDING_MODEL, embeddingsUpstream } from '../../../../scripts/rigs/gateway/embeddings-upstream.ts'
import { postEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import { MODEL, startGateway, startHostGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { present } from '../../../../src/base/assert.ts'
import { systemClock } from '../../../../src/base/clock.ts'
import { systemRandom } from '../../../../src/base/ids.ts'
import { createOwnEncryption } from '../../../../src/inference/encryption/encryption.ts'
import { createResponseMemory } from '../../../../src/inference/gateway/response-memory.ts'
import { startRealGateway } from '../../../rigs/gateway/real-gateway.ts'

const path = '/v1/responses'
const limits = { bodyBytesMax: 8_388_608 }
const secret = 'the launch code is 0451'
/** Longer than any body that the serving thread parses. */
const long = 'y'.repeat(200_000)
const longItem = { role: 'user', content: long }
/** Between two messages of the user, which would go up as one message. */
const between = { role: 'assistant', content: 'ok' }

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

type Made = { readonly id: string; readonly store: boolean; readonly output: readonly { readonly id: string }[] }
type Refused = { readonly error: { readonly code: string; readonly param: string; readonly message: string } }

async function made(answer: Response): Promise<Made> {
  expect(answer.status).toBe(200)
  return (await answer.json()) as Made
}

async function refused(answer: Response): Promise<unknown[]> {
  const { error } = (await answer.json()) as Refused
  return [answer.status, error.code, error.param]
}

/** The beginnings of the texts that the upstream got last. */
function lastTexts(): string[] {
  const { messages } = present(upstream.seen.at(-1), 'a request').body as { messages: { content: string }[] }
  return messages.map(({ content }) => content.slice(0, 24))
}

// Goal: a large request is kept, and others build on it; they build on it whether they are large
// themselves or not.
test('kept and built on', async () => {
  const gateway = undo.use(await startGateway([target(upstream.url)], { limits }))
  const ask = async (more: object) => await made(await gateway.post(path, { model: MODEL, ...more }))
  const first = await ask({ input: [{ role: 'user', content: secret }, between, longItem] })
  expect(first.store).toBe(true)
  const said = { type: 'item_reference', id: first.output.at(-1)?.id }
  for (const more of [{ input: 'short' }, { input: [longItem, between, { role: 'user', content: 'short' }] }]) {
    await ask({ ...more, previous_response_id: first.id })
    const texts = lastTexts()
    expect([texts.slice(0, 3), texts.at(-1)]).toEqual([[secret, 'ok', long.slice(0, 24)], 'short'])
  }
  // The item that a large input names is kept in its place.
  const named = await ask({ input: [said, longItem] })
  const saidText = present(lastTexts()[0], 'a text')
  expect(saidText).not.toBe('')
  await ask({ input: 'short', previous_response_id: named.id })
  expect(lastTexts().slice(0, 2)).toEqual([saidText, long.slice(0, 24)])
  const none = await ask({ input: [longItem], store: false })
  expect(none.store).toBe(false)
  const missing = { model: MODEL, input: [longItem], previous_response_id: none.id }
  expect(await refused(await gateway.post(path, missing))).toEqual([404, 'not_found', 'previous_response_id'])
})

// Goal: what is kept of a large request has no id of an item, which would have that of its response.
test('without ids', async () => {
  const memory = createResponseMemory(systemClock)
  const kept: string[] = []
  const responses: typeof memory = {
    ...memory,
    keep: (digest, response) => {
      kept.push(digest, JSON.stringify(response))
      memory.keep(digest, response)
    },
  }
  const gateway = undo.use(startHostGateway([target(upstream.url)], { limits, host: { responses } }))
  const ask = async (input: unknown[]) => await made(await gateway.post(path, { model: MODEL, input }))
  const first = await ask([longItem])
  const item = first.output.at(-1)
  const input = [item, { type: 'item_reference', id: item?.id }, { ...longItem, type: 'message', id: 'msg_own' }]
  await ask(input as unknown[])
  expect(kept.length).toBe(4)
  for (const text of kept) {
    for (const id of [first.id.slice('resp_'.length), 'msg_own', 'item_reference']) expect(text).not.toContain(id)
  }
})

// Goal: base64 that the thread cuts out is not kept; what the model said is.
test('pictures', async () => {
  const content = ['image'] as const
  const gateway = undo.use(await startGateway([target(upstream.url, { content })], { limits }))
  const picture = `data:image/png;base64,${'QUJD'.repeat(1_200_000)}`
  const input = [{ role: 'user', content: [{ type: 'input_image', image_url: picture }] }]
  const { id, output } = await made(await gateway.post(path, { model: MODEL, input }))
  const next = await gateway.post(path, { model: MODEL, input: 'x', previous_response_id: id })
  expect(await refused(next)).toEqual([404, 'not_found', 'previous_response_id'])
  const named = [{ type: 'item_reference', id: output.at(-1)?.id }, longItem]
  await made(await gateway.post(path, { model: MODEL, input: named }))
})

// Goal: an upstream outside gets nothing of a model inside, whichever of the two requests is large.
test('inside', async () => {
  const outer = await startUpstream()
  undo.defer(outer.stop)
  const upstreams = [
    target(upstream.url, { name: 'inner', models: ['in'] }),
    target(outer.url, { name: 'outer', models: ['out'] }),
  ]
  const gateway = undo.use(startHostGateway(upstreams, { limits, host: { inside: new Set(['inner']) } }))
  const user = { role: 'user', content: 'x' }
  for (const input of [secret, [{ role: 'user', content: secret }, longItem]]) {
    const { id, output } = await made(await gateway.post(path, { model: 'in', input }))
    const item = { type: 'item_reference', id: output.at(-1)?.id }
    for (const last of [user, longItem]) {
      for (const stream of [false, true]) {
        const chained = { model: 'out', stream, input: [last], previous_response_id: id }
        expect(await refused(await gateway.post(path, chained))).toEqual([
          400,
          'invalid_request',
          'previous_response_id',
        ])
        const naming = { model: 'out', stream, input: [item, last] }
        expect(await refused(await gateway.post(path, naming))).toEqual([400, 'invalid_request', 'input'])
      }
      await made(await gateway.post(path, { model: 'in', input: [last], previous_response_id: id }))
    }
  }
  expect(outer.seen).toEqual([])
})

// Goal: a large sealed body that is not bound to its key keeps and reads nothing; a bound one does.
test('sealed', async () => {
  const encryption = createOwnEncryption({ keys: ehbpKeys, random: systemRandom, clock: systemClock })
  const gateway = undo.use(startHostGateway([target(upstream.url)], { limits, host: { encryption } }))
  const ask = { model: MODEL, input: [{ role: 'user', content: secret }, between, longItem] }
  const unbound = JSON.parse(await (await postEncrypted(gateway, path, ask)).text())
  expect(unbound).toMatchObject({ object: 'response', store: false })
  const before = upstream.seen.length
  const missing = await gateway.post(path, { ...ask, previous_response_id: unbound.id })
  expect(missing.status).toBe(404)
  const bound = { epoch: encryption.epoch() }
  const first = JSON.parse(await (await postEncrypted(gateway, path, ask, bound)).text())
  expect(first).toMatchObject({ store: true })
  for (const [more, param] of [
    [{ previous_response_id: first.id }, 'previous_response_id'],
    [{ input: [{ type: 'item_reference', id: first.output.at(-1)?.id }, longItem] }, 'input'],
  ] as const) {
    const answer = await postEncrypted(gateway, path, { ...ask, ...more })
    const { error } = JSON.parse(await answer.text()) as Refused
    expect([answer.response.status, error.code, error.param]).toEqual([400, 'invalid_request', param])
    expect(error.message).toContain('attestedFetch')
  }
  expect(upstream.seen.length).toBe(before + 1)
  const next = { ...ask, previous_response_id: first.id }
  expect((await postEncrypted(gateway, path, next, bound)).response.status).toBe(200)
  expect(lastTexts()[0]).toBe(secret)
})

// Goal: the tokens of earlier responses are reserved before a text of theirs is read.
test('tokens', async () => {
  const memory = createResponseMemory(systemClock)
  let reads = 0
  const responses: typeof memory = {
    ...memory,
    find: (...asked) => {
      reads += 1
      return memory.find(...asked)
    },
  }
  const caller = { tokensPerMinute: 200_000 }
  const gateway = undo.use(startHostGateway([target(upstream.url)], { limits, caller, host: { responses } }))
  const first = await made(await gateway.post(path, { model: MODEL, input: 'y'.repeat(760_000) }))
  // The tokens that the upstream counted have replaced those that the first reserved: the body fits, and the earlier
  // response does not.
  const next = { model: MODEL, input: [longItem], previous_response_id: first.id }
  const answer = await gateway.post(path, next)
  const { error } = (await answer.json()) as Refused
  expect([answer.status, error.code]).toEqual([429, 'rate_limited'])
  expect(error.message).toContain('including the earlier responses that the request names')
  expect([reads, upstream.seen.length]).toEqual([0, 1])
})

const messages = [{ role: 'user', content: long }]
const REQUESTS = [
  ['/v1/chat/completions', { messages }],
  ['/v1/completions', { prompt: long }],
  ['/v1/responses', { input: long }],
  ['/v1/messages', { messages, max_tokens: 10 }],
  ['/v1/embeddings', { input: long }],
] as const
const own = 'a text that only this client has'

// Goal: prompt caches are as of small bodies: of the key and of the client's own salt.
test.each(REQUESTS)('%s: salts', async (api, fields) => {
  const isEmbeddings = api === '/v1/embeddings'
  const model = isEmbeddings ? EMBEDDING_MODEL : MODEL
  if (isEmbeddings) upstream.behave = embeddingsUpstream()
  const models = { models: [model], embeddingModels: isEmbeddings ? [model] : [] }
  const gateway = undo.use(
    await startRealGateway([target(upstream.url, { engine: 'vllm', ...models })], { ...limits, usageLabels: true }),
  )
  const [key, other] = [await gateway.addKey(), await gateway.addKey()]
  const post = (by: string, more: object) => gateway.post(api, { model, ...fields, ...more }, { key: by })
  const saltOf = async (by: string, more: object) => {
    const answer = await post(by, more)
    expect([answer.status, answer.headers.get('x-strongroom-ignored')]).toEqual([200, null])
    return upstream.seen.at(-1)?.body.cache_salt
  }
  const without = await saltOf(key, {})
  const salted = await saltOf(key, { cache_salt: own })
  expect(await saltOf(key, { cache_salt: own })).toBe(salted)
  expect(without).toMatch(/^[\w-]{43}$/)
  expect(new Set([without, salted, await saltOf(other, {}), await saltOf(other, { cache_salt: own })]).size).toBe(4)
  // The same as in a small request.
  const small = Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name,
      value === long ? 'x' : value === messages ? [{ role: 'user', content: 'x' }] : value,
    ]),
  )
  expect(await saltOf(key, { ...small, cache_salt: own })).toBe(salted)
  expect(JSON.stringify(upstream.seen)).not.toContain(own)
  expect(await refused(await post(key, { cache_salt: 'x'.repeat(257) }))).toEqual([
    400,
    'invalid_request',
    'cache_salt',
  ])
})

// Goal: labels of a large request are in the ledger, and its response is kept all the same.
test('labels', async () => {
  const gateway = undo.use(await startGateway([target(upstream.url)], { limits: { ...limits, usageLabels: true } }))
  const metadata = { team: 'blue' }
  const asked = { model: MODEL, input: [longItem], user: 'ann', metadata }
  const { id } = await made(await gateway.post(path, asked))
  await made(await gateway.post(path, { ...asked, user: 'bob', previous_response_id: id }))
  const labels = (await gateway.records()).map(({ labels }) => labels)
  expect(labels).toEqual([
    { endUser: 'ann', tags: '{"team":"blue"}' },
    { endUser: 'bob', tags: '{"team":"blue"}' },
  ])
})
