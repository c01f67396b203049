// Responses that later requests build on: for the very key, within bounds, and not for whoever says store: false.

import { afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { MODEL, startGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { type RealGateway, startRealGateway } from '../../rigs/gateway/real-gateway.ts'

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

type Made = { readonly id: string; readonly store: boolean; readonly output: readonly { readonly id: string }[] }
const path = '/v1/responses'
const ask = (more: object) => ({ model: MODEL, input: 'Hello', ...more })
const sentUp = () => (upstream.seen.at(-1)?.body.messages ?? []) as { role: string; content: unknown }[]

async function made(gateway: TestGateway, more: object = {}): Promise<Made> {
  const answer = await gateway.post(path, ask(more))
  expect(answer.status).toBe(200)
  return (await answer.json()) as Made
}

describe('a key of its own', () => {
  let gateway: TestGateway

  beforeEach(async () => {
    gateway = undo.use(await startGateway([target(upstream.url)]))
  })

  // Goal: a turn that names the response before it goes up with all turns before, whether they were streamed or not.
  test('chains', async () => {
    const first = await made(gateway)
    const streamed = await gateway.post(path, ask({ input: 'Two', previous_response_id: first.id, stream: true }))
    const [, second = ''] = /"id":"(resp_[0-9a-f]{32})"/.exec(await streamed.text()) ?? []
    expect(second).not.toBe('')
    await made(gateway, {
      input: [{ role: 'user', content: 'Three' }],
      instructions: 'Be brief.',
      previous_response_id: second,
    })
    expect(sentUp().map(({ role, content }) => [role, content])).toEqual([
      ['system', 'Be brief.'],
      ['user', 'Hello'],
      ['assistant', 'Grüße 👋 you'],
      ['user', 'Two'],
      ['assistant', 'Grüße 👋 you'],
      ['user', 'Three'],
    ])
  })

  // Goal: an item that is named stands for itself.
  test('references', async () => {
    const { output } = await made(gateway)
    const input = [{ role: 'user', content: 'Hello' }, ...output.map(({ id }) => ({ type: 'item_reference', id }))]
    await made(gateway, { input: [...input, { role: 'user', content: 'More' }] })
    expect(sentUp().map(({ content }) => content)).toEqual(['Hello', 'Grüße 👋 you', 'More'])
  })

  // Goal: a response whose request named an item can be built on, as one that was sent the item
  // itself.
  test('references in a chain', async () => {
    const { output } = await made(gateway)
    const named = { type: 'item_reference', id: output.at(-1)?.id }
    const [first, more] = ['First', 'More'].map(content => ({ role: 'user', content }))
    const { id } = await made(gateway, { input: [first, named, more] })
    await made(gateway, { input: 'Last', previous_response_id: id })
    expect(sentUp().map(({ content }) => content)).toEqual(['First', 'Grüße 👋 you', 'More', 'Grüße 👋 you', 'Last'])
  })

  // Goal: ids that name nothing are a 404 with the field; nothing goes up.
  test.each([
    [{ previous_response_id: `resp_${'0'.repeat(32)}` }, 'previous_response_id'],
    [{ previous_response_id: '../etc' }, 'previous_response_id'],
    [{ input: [{ type: 'item_reference', id: `msg_${'0'.repeat(35)}` }] }, 'input[0].id'],
    [{ input: [{ type: 'item_reference', id: '__proto__' }] }, 'input[0].id'],
  ])('%j', async (more, param) => {
    const answer = await gateway.post(path, ask(more))
    expect([answer.status, ((await answer.json()) as { error: unknown }).error]).toMatchObject([
      404,
      { code: 'not_found', param },
    ])
    expect(upstream.seen).toEqual([])
  })

  // Goal: what is not to be stored is not there, and the response says so.
  test('store: false', async () => {
    const { id, store } = await made(gateway, { store: false })
    expect(store).toBe(false)
    expect((await gateway.post(path, ask({ previous_response_id: id }))).status).toBe(404)
  })

  // Goal: an input of more than a mebibyte is not kept, what was said to it is.
  test('a long input', async () => {
    await using roomy = await startGateway([target(upstream.url)], { limits: { bodyBytesMax: 2_000_000 } })
    const { id, output } = await made(roomy, { input: 'x'.repeat(1_100_000) })
    expect((await roomy.post(path, ask({ previous_response_id: id }))).status).toBe(404)
    await made(roomy, { input: output.map(item => ({ type: 'item_reference', id: item.id })) })
    expect(sentUp().at(-1)?.content).toBe('Grüße 👋 you')
  })
})

// Goal: no other key reads it, not one of the same organization.
test('other keys', async () => {
  const gateway: RealGateway = undo.use(await startRealGateway([target(upstream.url)]))
  const [own, colleague, stranger] = [
    await gateway.addKey(),
    await gateway.addKey(),
    await gateway.addKey({ organizationId: 'o2' }),
  ]
  const { id, output } = (await (await gateway.post(path, ask({}), { key: own })).json()) as Made
  const input = output.map(item => ({ type: 'item_reference', id: item.id }))
  for (const [key, status] of [
    [own, 200],
    [colleague, 404],
    [stranger, 404],
  ] as const) {
    expect((await gateway.post(path, ask({ previous_response_id: id }), { key })).status).toBe(status)
    expect((await gateway.post(path, ask({ input }), { key })).status).toBe(status)
  }
})
