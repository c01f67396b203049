// GET /v1/responses/{id}, and /input_items below it: the response as the client got it, for the very key, and never of
// an encrypted request.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { ehbpKeys } from '../../../scripts/rigs/gateway/ehbp.ts'
import { postEncrypted } from '../../../scripts/rigs/gateway/encrypted-client.ts'
import {
  KEY,
  MODEL,
  startGateway,
  startHostGateway,
  type TestGateway,
  target,
} from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createOwnEncryption } from '../../../src/inference/encryption/encryption.ts'
import { type RealGateway, startRealGateway } from '../../rigs/gateway/real-gateway.ts'

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

const start = async () => undo.use(await startGateway([target(upstream.url)]))
const path = '/v1/responses'
const ask = (more: object = {}) => ({ model: MODEL, input: 'Hello', metadata: { a: 'b' }, ...more })
type Made = { readonly id: string; readonly output: readonly object[] }

function retrieve({ url }: Pick<TestGateway, 'url'>, id: string, key = KEY): Promise<Response> {
  return fetch(`${url}${path}/${id}`, { headers: { authorization: `Bearer ${key}` } })
}

// Goal: the retrieved response is the one that was sent, whole or as a stream. previous_response_id is left out.
test('retrieves', async () => {
  const gateway = await start()
  const first = (await (await gateway.post(path, ask())).json()) as Made
  expect(first.output.length).toBeGreaterThan(0)
  const { previous_response_id: _, ...sent } = first as Made & { previous_response_id: null }
  const answer = await retrieve(gateway, first.id)
  expect([answer.status, await answer.json()]).toEqual([200, sent])
  const stream = await (await gateway.post(path, ask({ previous_response_id: first.id, stream: true }))).text()
  const [, completed = ''] = /^event: response\.completed\ndata: (.*)$/m.exec(stream) ?? []
  const { response } = JSON.parse(completed) as { response: Made & { previous_response_id: string } }
  expect(response.previous_response_id).toBe(first.id)
  const { previous_response_id: _2, ...streamed } = response
  expect(await (await retrieve(gateway, response.id)).json()).toEqual(streamed)
  // It costs nothing, and asks no upstream.
  expect([upstream.seen.length, (await gateway.records()).length]).toEqual([2, 2])
})

// Goal: what is not kept is a 404 with what to do, and a stream is refused by its name.
test('refusals', async () => {
  const gateway = await start()
  const { id } = (await (await gateway.post(path, ask())).json()) as Made
  const unkept = (await (await gateway.post(path, ask({ store: false }))).json()) as Made
  for (const [item, status, param] of [
    [unkept.id, 404, null],
    [`resp_${'0'.repeat(32)}`, 404, null],
    [`${id}/input`, 404, null],
    [`resp_${'0'.repeat(32)}/input_items`, 404, null],
    [`${id}/input_items?limit=0`, 400, 'limit'],
    [`${id}/input_items?limit=101`, 400, 'limit'],
    [`${id}/input_items?limit=1e1`, 400, 'limit'],
    [`${id}/input_items?order=up`, 400, 'order'],
    [`${id}/input_items?after=msg_1`, 400, 'after'],
    ['..%2fetc', 404, null],
    [`${id}?stream=true`, 400, 'stream'],
    [`${id}?stream=false`, 200, undefined],
    [`${id}?include[]=x`, 200, undefined],
  ] as const) {
    const answer = await retrieve(gateway, item)
    const { error } = (await answer.json()) as { error?: { param: string | null } | null }
    expect([item, answer.status, error?.param]).toEqual([item, status, param])
  }
  expect((await retrieve(gateway, id, 'x')).status).toBe(401)
  const wrong = await gateway.post(`${path}/${id}`, {})
  expect([wrong.status, wrong.headers.get('allow')]).toEqual([405, 'GET, HEAD'])
})

type Items = {
  readonly data: readonly Record<string, unknown>[]
  readonly first_id: string | null
  readonly last_id: string | null
  readonly has_more: boolean
}

// Goal: the request's own items come in pages, the last first as with OpenAI, and no item is left out or comes twice.
test('input items', async () => {
  const gateway = await start()
  const input = Array.from({ length: 23 }, (_, at) => ({ type: 'message', role: 'user', content: `Item ${at}` }))
  const { id } = (await (await gateway.post(path, ask({ input }))).json()) as Made
  const pageOf = async (query: string) => (await (await retrieve(gateway, `${id}/input_items${query}`)).json()) as Items
  const first = await pageOf('')
  expect([first.data.length, first.has_more, first.first_id, first.last_id]).toEqual([
    20,
    true,
    first.data[0]?.id as string,
    first.data[19]?.id as string,
  ])
  const second = await pageOf(`?after=${first.last_id}`)
  expect([second.data.length, second.has_more]).toEqual([3, false])
  const all = [...first.data, ...second.data]
  expect(new Set(all.map(item => item.id)).size).toBe(23)
  expect(all.map(({ id: _, ...item }) => item).toReversed()).toMatchObject(input)
  const ascending = await pageOf('?order=asc&limit=100')
  expect(ascending.data).toEqual(all.toReversed())
  // A later response has its own items alone.
  const next = (await (await gateway.post(path, ask({ input: 'More', previous_response_id: id }))).json()) as Made
  const { data } = (await (await retrieve(gateway, `${next.id}/input_items`)).json()) as Items
  expect(data).toMatchObject([{ type: 'message', role: 'user', content: 'More' }])
  // The id of an input item is none of an output item.
  const reference = [{ type: 'item_reference', id: ascending.data[0]?.id }]
  expect((await gateway.post(path, ask({ input: reference }))).status).toBe(404)
})

// Goal: the path of a request is readable by the host, so a response to an encrypted request is never retrieved by it,
// though later encrypted requests build on it.
test('encrypted', async () => {
  const encryption = createOwnEncryption({ keys: ehbpKeys, random: systemRandom, clock: systemClock })
  const gateway = undo.use(await startHostGateway([target(upstream.url)], { host: { encryption } }))
  const epoch = encryption.epoch()
  const made = await postEncrypted(gateway, path, ask(), { epoch })
  const { id } = JSON.parse(await made.text()) as Made
  expect((await retrieve(gateway, id)).status).toBe(404)
  expect((await retrieve(gateway, `${id}/input_items`)).status).toBe(404)
  const next = await postEncrypted(gateway, path, ask({ input: 'More', previous_response_id: id }), { epoch })
  expect(next.response.status).toBe(200)
})

// Goal: no other key retrieves it, not one of the same organization.
test('other keys', async () => {
  const gateway: RealGateway = undo.use(await startRealGateway([target(upstream.url)]))
  const [own, colleague] = [await gateway.addKey(), await gateway.addKey()]
  const { id } = (await (await gateway.post(path, ask(), { key: own })).json()) as Made
  expect((await retrieve(gateway, id, own)).status).toBe(200)
  expect((await retrieve(gateway, id, colleague)).status).toBe(404)
  expect((await retrieve(gateway, `${id}/input_items`, own)).status).toBe(200)
  expect((await retrieve(gateway, `${id}/input_items`, colleague)).status).toBe(404)
})
