// Goal: a request beyond a budget is refused before an upstream is asked, with a remedy, wherever the gateway runs.

import { expect, test } from 'bun:test'
import { CALLER, MODEL, startGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { needsHost } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { startUpstream, USAGE } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import type { GatewayError } from '../../../src/contract/http/inference.ts'
import { messagesDialect } from '../../../src/inference/dialects/messages/dialect.ts'
import { errorResponse } from '../../../src/inference/gateway/responses.ts'
import { BudgetFault } from '../../../src/inference/metering/budgets.ts'

const tokens = (most: number) => ({
  budgets: { ...CALLER.budgets, key: { nanoUsd: null, tokens: most } },
})

test('goal: no bound on the answer is as much as the model may say; with one the request fits, and its cost is taken off', async () => {
  const upstream = await startUpstream()
  await using gateway = await startGateway([target(upstream.url, { contextTokens: 8_192 })], { caller: tokens(10_000) })
  const refused = await gateway.chat()
  const { error } = (await refused.json()) as GatewayError
  expect([refused.status, error.code, error.type]).toEqual([402, 'budget_exceeded', 'insufficient_quota'])
  expect([refused.headers.get('x-should-retry'), refused.headers.get('retry-after')]).toEqual(['false', null])
  expect(error.message).toMatch(/token budget of this key for \d{4}-\d{2} .* max_tokens.* resets at \d{4}-\d{2}-01T/)
  expect(upstream.seen).toEqual([])
  const perRequest = USAGE.prompt_tokens + USAGE.completion_tokens
  let served = 0
  while (served < 10 && (await gateway.chat({ max_tokens: 5 })).status === 200) served += 1
  expect([served, upstream.seen.length, perRequest > 0]).toEqual([10, 10, true])
  await upstream.stop()
})

test('goal: requests at the same time do not pass a budget together, and one that fails costs nothing', async () => {
  const gate = Promise.withResolvers<void>()
  const upstream = await startUpstream(async response => {
    await gate.promise
    response.writeHead(500).end()
  })
  await using gateway = await startGateway([target(upstream.url)], { caller: tokens(10_000) })
  // Each may cost some 4,200 tokens: the template's share, the prompt and the answer.
  const asked = Array.from({ length: 6 }, () => gateway.chat({ max_tokens: 5 }))
  const statuses: number[] = []
  const all = asked.map(async request => void statuses.push((await request).status))
  await until('four are refused', 15_000, () => statuses.length === 4 && upstream.seen.length === 2)
  gate.resolve()
  await Promise.all(all)
  expect(statuses.sort()).toEqual([429, 429, 429, 429, 502, 502])
  await upstream.stop()
})

// Goal: clients of Anthropic's API retry a budget with room soon, and do not retry one that is spent.
test("the type of Anthropic's error follows the status", async () => {
  const typeOf = async (mayFitSoon: boolean) => {
    const response = errorResponse(new BudgetFault('no room', { mayFitSoon }), {}, messagesDialect)
    const { error } = (await response.json()) as { error: { type: string; code: string } }
    return [response.status, error.type, error.code, response.headers.get('retry-after')]
  }
  expect(await typeOf(true)).toEqual([429, 'rate_limit_error', 'budget_exceeded', '5'])
  expect(await typeOf(false)).toEqual([402, 'billing_error', 'budget_exceeded', null])
})

const perUser = (isRequired = false) => ({
  budgets: {
    ...CALLER.budgets,
    endUser: { period: 'month', nanoUsd: 15, usersMax: 2, isRequired } as const,
  },
})
const hi = [{ role: 'user', content: 'Hi' }]

const noPrice = needsHost('requests without a price')
// Goal: each API has the end user in its own field. A request costs 7, and one end user does not spend what another
// has.
test.skipIf(noPrice)('budgets of end users in every API', async () => {
  const upstream = await startUpstream()
  await using gateway = await startGateway([target(upstream.url)], { caller: perUser() })
  const chat = (more: object) => gateway.post('/v1/chat/completions', { model: MODEL, messages: hi, ...more })
  const response = (more: object) => gateway.post('/v1/responses', { model: MODEL, input: 'Hi', ...more })
  const message = (more: object) => gateway.post('/v1/messages', { model: MODEL, messages: hi, max_tokens: 5, ...more })
  expect((await chat({ user: 'ann' })).status).toBe(200)
  expect((await response({ safety_identifier: 'ann' })).status).toBe(200)
  const refused = await message({ metadata: { user_id: 'ann' } })
  const { error } = (await refused.json()) as GatewayError
  expect([refused.status, error.code]).toEqual([402, 'budget_exceeded'])
  expect(error.message).toMatch(/^The money budget of this end user for \d{4}-\d{2} cannot cover/)
  // The fields of another API name nobody: all of these share one budget.
  const shared = [{ metadata: { user_id: 'x' } }, { user: '' }, { user: 'bad\u0001name' }]
  const statuses = []
  for (const more of shared) statuses.push((await chat(more)).status)
  expect(statuses).toEqual([200, 200, 402])
  // One more name has a budget of its own, and all further ones share theirs.
  expect((await chat({ user: 'bob' })).status).toBe(200)
  const invented = []
  for (let at = 0; at < 5; at += 1) invented.push((await chat({ user: `invented-${at}`, stream: at % 2 === 0 })).status)
  expect(invented).toEqual([200, 200, 402, 402, 402])
  expect((await message({ metadata: { user_id: 'bob' } })).status).toBe(200)
  await upstream.stop()
})

// Goal: a field that chose the budget had an effect, so that no response says that it had none, and a gateway that
// refuses fields without one takes it. The other fields are named as before.
test.each([false, true])('the field that chose the budget is not ignored, strict: %p', async refusesUnknownFields => {
  const upstream = await startUpstream()
  const ample = { ...CALLER.budgets, endUser: { ...perUser().budgets.endUser, nanoUsd: 1_000 } }
  const caller = { budgets: ample }
  await using gateway = await startGateway([target(upstream.url)], { caller, limits: { refusesUnknownFields } })
  const seen: unknown[] = []
  for (const [path, more] of [
    ['/v1/chat/completions', { messages: hi, safety_identifier: 'ann' }],
    ['/v1/responses', { input: 'Hi', safety_identifier: 'ann' }],
    ['/v1/messages', { messages: hi, max_tokens: 5, metadata: { user_id: 'ann' } }],
    ['/v1/chat/completions', { messages: hi, user: 'ann', safety_identifier: 'bob' }],
    ['/v1/messages', { messages: hi, max_tokens: 5, user: 'ann' }],
  ] as const) {
    const response = await gateway.post(path, { model: MODEL, ...more })
    seen.push([response.status, response.headers.get('x-strongroom-ignored')])
    await response.text()
  }
  const rest = ['safety_identifier', 'user']
  expect(seen).toEqual([
    ...[1, 2, 3].map(() => [200, null]),
    ...rest.map(name => (refusesUnknownFields ? [400, null] : [200, name])),
  ])
  await using plain = await startGateway([target(upstream.url)])
  const response = await plain.chat({ safety_identifier: 'ann' })
  expect(response.headers.get('x-strongroom-ignored')).toBe('safety_identifier')
  await upstream.stop()
})

// Goal: a key that needs the end user refuses what names none before an upstream is asked, whatever the body's length.
test('required end users', async () => {
  const upstream = await startUpstream()
  const options = { caller: perUser(true), limits: { bodyBytesMax: 2_000_000 } }
  await using gateway = await startGateway([target(upstream.url)], options)
  for (const filler of ['', 'x'.repeat(600_000)]) {
    const messages = [{ role: 'user', content: `Hi${filler}` }]
    const refused = await gateway.chat({ messages })
    const { error } = (await refused.json()) as GatewayError
    expect([refused.status, error.code, error.param]).toEqual([400, 'invalid_request', 'user'])
    expect((await gateway.chat({ messages, user: `u${filler.length}` })).status).toBe(200)
  }
  expect(upstream.seen.length).toBe(2)
  await upstream.stop()
})
