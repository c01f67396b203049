// Goal: a request beyond a budget is refused before an upstream is asked, with a remedy, wherever the gateway runs.

import { expect, test } from 'bun:test'
import { CALLER, startGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, USAGE } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import type { GatewayError } from '../../../src/contract/http/inference.ts'

const tokens = (most: number) => ({
  budgets: { ...CALLER.budgets, key: { nanoUsd: null, tokens: most } },
})

test('goal: no bound on the answer is as much as the model may say; with one the request fits, and its cost is taken off', async () => {
  const upstream = await startUpstream()
  await using gateway = await startGateway([target(upstream.url, { contextTokens: 8_192 })], { caller: tokens(10_000) })
  const refused = await gateway.chat()
  const { error } = (await refused.json()) as GatewayError
  expect([refused.status, error.code, error.type]).toEqual([429, 'budget_exceeded', 'insufficient_quota'])
  expect([refused.headers.get('x-should-retry'), Number(refused.headers.get('retry-after')) > 0]).toEqual([
    'false',
    true,
  ])
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
