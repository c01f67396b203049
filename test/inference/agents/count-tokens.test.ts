// POST /v1/messages/count_tokens, and what only answers under /v1/messages have.

import { expect, test } from 'bun:test'
import { eachWithGateway, MODEL, type TestGateway } from '../../../scripts/rigs/gateway/server.ts'
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
