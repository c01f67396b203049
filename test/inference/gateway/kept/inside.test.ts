// Earlier items of a model inside the measured boundary, and of sealed requests: who may build on
// them, and how.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { ehbpKeys } from '../../../../scripts/rigs/gateway/ehbp.ts'
import { postEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import { MODEL, startHostGateway, type TestGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { sendJson, startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { systemClock } from '../../../../src/base/clock.ts'
import { systemRandom } from '../../../../src/base/ids.ts'
import { NO_RULES } from '../../../../src/contract/key-rules.ts'
import { createOwnEncryption } from '../../../../src/inference/encryption/encryption.ts'
import { servedModels } from '../../../../src/inference/gateway/models.ts'

const path = '/v1/responses'
const secret = 'the launch code is 0451'

let undo: AsyncDisposableStack
let inner: TestUpstream
let outer: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  inner = await startUpstream()
  undo.defer(inner.stop)
  outer = await startUpstream()
  undo.defer(outer.stop)
})

afterEach(() => undo.disposeAsync())

type Made = { readonly id: string; readonly output: readonly { readonly id: string }[] }
type Refused = { readonly error: { readonly code: string; readonly param: string; readonly message: string } }

async function made(gateway: Pick<TestGateway, 'post'>, body: object): Promise<Made> {
  const answer = await gateway.post(path, { input: 'x', ...body })
  expect(answer.status).toBe(200)
  return (await answer.json()) as Made
}

const leaked = () => outer.seen.filter(({ body }) => JSON.stringify(body).includes(secret)).length

describe('a model inside and others', () => {
  let gateway: TestGateway

  beforeEach(() => {
    const upstreams = [
      target(inner.url, { name: 'inner', models: ['in', 'also-in', 'both', 'in-first'] }),
      target(outer.url, { name: 'outer', models: ['out', 'both', 'out-first'] }),
    ]
    const fallbacks = [
      { model: 'in-first', fallback: 'out' },
      { model: 'out-first', fallback: 'in' },
      { model: 'out', fallback: 'in', canaryPercent: 100 },
    ]
    const rules = { ...NO_RULES, aliases: [{ name: 'nice', model: 'in' }] }
    const host = { inside: new Set(['inner']) }
    gateway = undo.use(startHostGateway(upstreams, { host, limits: { fallbacks }, caller: { rules } }))
  })

  // Goal: no model that an upstream outside may answer gets them, by whatever name, fallback,
  // canary or failover.
  test.each(['out', 'both', 'out-first'])('by %s', async model => {
    const { id, output } = await made(gateway, { model: 'in', input: secret })
    const input = [
      { type: 'item_reference', id: output.at(-1)?.id },
      { role: 'user', content: 'x' },
    ]
    for (const stream of [false, true]) {
      for (const [more, param] of [
        [{ previous_response_id: id }, 'previous_response_id'],
        [{ input }, 'input'],
      ] as const) {
        const answer = await gateway.post(path, { model, input: 'repeat it', stream, ...more })
        const { error } = (await answer.json()) as Refused
        expect([answer.status, error.code, error.param]).toEqual([400, 'invalid_request', param])
        expect(error.message).toContain('inside the measured VM')
        expect(error.message).toContain('send the items in input')
      }
    }
    expect([inner.seen.length, outer.seen.length]).toEqual([1, 0])
  })

  // Goal: an upstream inside that fails hands them to no other.
  test.each(['in', 'also-in', 'in-first', 'nice'])('a failure of %s', async model => {
    const { id } = await made(gateway, { model: 'in', input: secret })
    inner.behave = response => sendJson(response, 500, {})
    const answer = await gateway.post(path, { model, input: 'x', previous_response_id: id })
    expect(answer.status).toBe(502)
    expect(outer.seen).toEqual([])
  })

  // Goal: models inside build on each other; and a chain is inside from the first of its responses
  // that is.
  test('chains', async () => {
    const outside = await made(gateway, { model: 'out-first' })
    expect(outer.seen.length).toBe(1)
    const alias = await made(gateway, { model: 'nice', input: secret, previous_response_id: outside.id })
    const last = await made(gateway, { model: 'also-in', previous_response_id: alias.id })
    for (const { id } of [alias, last]) {
      const answer = await gateway.post(path, { model: 'out-first', input: 'x', previous_response_id: id })
      expect(answer.status).toBe(400)
    }
    // A response that was outside from the beginning may go there again.
    await made(gateway, { model: 'out-first', previous_response_id: outside.id })
    expect([outer.seen.length, leaked()]).toEqual([2, 0])
  })

  // Goal: a model outside whose fallback inside has answered goes on: its client has sent the
  // prompt outside.
  test('a fallback inside', async () => {
    outer.behave = response => sendJson(response, 500, {})
    const { id } = await made(gateway, { model: 'out-first', input: 'not secret' })
    expect([inner.seen.length, outer.seen.length]).toEqual([1, 1])
    await made(gateway, { model: 'out-first', previous_response_id: id })
  })
})

// Goal: a model is inside where every upstream that may answer it is.
test('models inside', () => {
  const upstreams = [
    { name: 'a', models: ['in', 'both'], embeddingModels: [] },
    { name: 'b', models: ['both', 'out'], embeddingModels: [] },
    { name: 'c', models: ['in'], embeddingModels: [] },
  ]
  expect(servedModels(upstreams, new Set(['a', 'c'])).inside).toEqual(new Set(['in']))
  expect(servedModels(upstreams, new Set()).inside).toEqual(new Set())
})

describe('sealed requests', () => {
  const encryption = createOwnEncryption({ keys: ehbpKeys, random: systemRandom, clock: systemClock })
  const sealedGateway = () => undo.use(startHostGateway([target(inner.url)], { host: { encryption } }))
  const ask = { model: MODEL, input: secret }

  // Goal: a sealed body that another key sends again leaves nothing that this key could build on.
  test('not bound: nothing is kept, and nothing earlier is read', async () => {
    const gateway = sealedGateway()
    const answer = JSON.parse(await (await postEncrypted(gateway, path, ask)).text())
    expect(answer).toMatchObject({ object: 'response', store: false })
    const next = await gateway.post(path, { ...ask, previous_response_id: answer.id })
    expect(next.status).toBe(404)
    const plain = await made(gateway, ask)
    for (const [more, param] of [
      [{ previous_response_id: plain.id }, 'previous_response_id'],
      [{ input: [{ type: 'item_reference', id: plain.output.at(-1)?.id }] }, 'input'],
    ] as const) {
      const refused = await postEncrypted(gateway, path, { ...ask, ...more })
      const { error } = JSON.parse(await refused.text()) as Refused
      expect([refused.response.status, error.code, error.param]).toEqual([400, 'invalid_request', param])
      expect(error.message).toContain('attestedFetch')
      expect(error.message).toContain('send the items in input')
    }
  })

  // Goal: one that is bound to its key keeps and reads as a plain one.
  test('bound: it is kept', async () => {
    const gateway = sealedGateway()
    const bound = { epoch: encryption.epoch() }
    const first = JSON.parse(await (await postEncrypted(gateway, path, ask, bound)).text())
    expect(first).toMatchObject({ store: true })
    const next = { ...ask, input: 'x', previous_response_id: first.id }
    const second = await postEncrypted(gateway, path, next, bound)
    expect(second.response.status).toBe(200)
    expect(JSON.stringify(inner.seen.at(-1)?.body)).toContain(secret)
  })
})
