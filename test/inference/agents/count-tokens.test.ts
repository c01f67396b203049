// POST /v1/messages/count_tokens and /v1/responses/input_tokens, and what only answers under /v1/messages have.

import { expect, test } from 'bun:test'
import { eachWithGateway, MODEL, startGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import type { TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((newUpstream, newGateway) => {
  upstream = newUpstream
  gateway = newGateway
})

const path = '/v1/messages/count_tokens'
const ask = (content: unknown) => ({ model: MODEL, messages: [{ role: 'user', content }] })

async function counted(content: unknown): Promise<number> {
  const answer = await gateway.post(path, ask(content))
  expect(answer.status).toBe(200)
  return ((await answer.json()) as { input_tokens: number }).input_tokens
}

// Goal: the count grows by a quarter of the text and by a constant for a picture; no upstream is asked, nothing booked.
test('counts', async () => {
  const base = await counted('')
  expect((await counted('x'.repeat(4_000))) - base).toBe(1_000)
  const image = (bytes: number) => [
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'A'.repeat(bytes) } },
  ]
  expect(await counted(image(40_000))).toBe(await counted(image(4)))
  expect((await counted(image(4))) - base).toBeGreaterThan(1_500)
  expect([upstream.seen, await gateway.records()]).toEqual([[], []])
})

// Goal: every answer under /v1/messages has Anthropic's form and id, also where there is no such route.
test('refusals', async () => {
  for (const [wrong, status, type, init] of [
    ['/v1/messages/batches', 404, 'not_found_error', {}],
    [path, 401, 'authentication_error', { headers: { authorization: 'Bearer x' } }],
    [path, 400, 'invalid_request_error', {}],
    ['/v1/messages', 400, 'invalid_request_error', {}],
  ] as const) {
    const answer = await gateway.post(wrong, { model: MODEL, messages: 'x' }, init)
    const body = (await answer.json()) as { type: string; error: { type: string } }
    expect([answer.status, body.type, body.error.type]).toEqual([status, 'error', type])
    expect(answer.headers.get('request-id')).toBe(answer.headers.get('x-request-id'))
  }
})

// Goal: the count of the Responses API follows the same rule, includes what the request builds on, and books nothing of
// its own, for a small body and for one that a thread parses.
test('input_tokens', async () => {
  await using roomy = await startGateway([target(upstream.url)], { limits: { bodyBytesMax: 2_000_000 } })
  const count = async (body: object) => {
    const answer = await roomy.post('/v1/responses/input_tokens', { model: MODEL, ...body })
    expect(answer.status).toBe(200)
    const { object, input_tokens: tokens } = (await answer.json()) as { object: string; input_tokens: number }
    expect(object).toBe('response.input_tokens')
    return tokens
  }
  const base = await count({ input: '' })
  expect((await count({ input: 'x'.repeat(4_000) })) - base).toBe(1_000)
  expect((await count({ input: 'x'.repeat(400_000) })) - base).toBe(100_000)
  const image = [
    { role: 'user', content: [{ type: 'input_image', image_url: `data:image/png;base64,${'A'.repeat(40_000)}` }] },
  ]
  expect((await count({ input: image })) - base).toBeGreaterThan(1_500)
  expect([upstream.seen, await roomy.records()]).toEqual([[], []])
  const made = await roomy.post('/v1/responses', { model: MODEL, input: 'y'.repeat(4_000) })
  const { id } = (await made.json()) as { id: string }
  const later = await count({ input: '', previous_response_id: id })
  expect(later - base).toBeGreaterThan(1_000)
  const large = await count({ input: 'x'.repeat(400_000), previous_response_id: id })
  expect(large - later).toBe(100_000)
  expect([upstream.seen.length, (await roomy.records()).length]).toEqual([1, 1])
})

// Goal: errors name the field of the client, in OpenAI's form.
test('refusals of input_tokens', async () => {
  for (const [body, status, param] of [
    [{ input: 1 }, 400, 'input'],
    [{ input: 'x', conversation: 'conv_1' }, 400, 'conversation'],
    [{ input: 'x', previous_response_id: `resp_${'0'.repeat(32)}` }, 404, 'previous_response_id'],
    [{ input: 'x', model: 'nothing' }, 404, null],
  ] as const) {
    const answer = await gateway.post('/v1/responses/input_tokens', { model: MODEL, ...body })
    const { error } = (await answer.json()) as { error: { param: string | null } }
    expect([answer.status, error.param]).toEqual([status, param])
  }
})
