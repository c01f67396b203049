// Goal: a key reads its own usage of the running month as soon as a request has ended, wherever the gateway runs.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import {
  eachWithGateway,
  KEY,
  startHostGateway,
  type TestGateway,
  target,
} from '../../../scripts/rigs/gateway/server.ts'
import { needsHost } from '../../../scripts/rigs/gateway/test-gateway.ts'
import type { TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { type GatewayError, GatewayUsage, GatewayUsageRows } from '../../../src/contract/http/inference.ts'
import type { DaySum } from '../../../src/store/directory/usage/usage-day.query.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})

const usageOf = async (url: string, key = KEY): Promise<GatewayUsage> => {
  const response = await fetch(`${url}/v1/usage`, { headers: { authorization: `Bearer ${key}` } })
  const body: unknown = await response.json()
  expect([response.status, [...Value.Errors(GatewayUsage, body)]]).toEqual([200, []])
  return body as GatewayUsage
}

test('goal: a request that has ended is in the numbers of its key and organization, in the month of UTC', async () => {
  const before = await usageOf(gateway.url)
  expect(before.key).toEqual({ requests: 0, prompt_tokens: 0, completion_tokens: 0, cost_usd: '0.000000000' })
  const answer = (await (await gateway.chat()).json()) as {
    usage: { prompt_tokens: number; completion_tokens: number }
  }
  await (await gateway.chat()).text()
  const { key, organization, period } = await usageOf(gateway.url)
  expect([key.requests, key.prompt_tokens, key.completion_tokens]).toEqual([
    ...[2, 2 * answer.usage.prompt_tokens, 2 * answer.usage.completion_tokens],
  ])
  expect(organization).toEqual(key)
  expect([period.start.slice(7), new Date(Date.parse(period.end) - 1).toISOString().slice(0, 7)]).toEqual([
    ...['-01T00:00:00.000Z', period.start.slice(0, 7)],
  ])
})

// Goal: who works in an instance does not learn what the others do.
test.skipIf(needsHost('its key is of an instance that the store does not have'))(
  'a key of an instance is not told of the other keys; without a key there is no such route',
  async () => {
    await using gateway = startHostGateway([target(upstream.url)], { caller: { instanceId: 'i1' } })
    expect((await usageOf(gateway.url)).organization).toBeNull()
    expect((await fetch(`${gateway.url}/v1/usage`)).status).toBe(401)
  },
)

const askRows = (query: string, url = gateway.url, key = KEY) =>
  fetch(`${url}/v1/usage?${query}`, { headers: { authorization: `Bearer ${key}` } })
const rowsOf = async (query: string, url?: string): Promise<GatewayUsageRows> => {
  const response = await askRows(query, url)
  const body: unknown = await response.json()
  expect([response.status, [...Value.Errors(GatewayUsageRows, body)]]).toEqual([200, []])
  return body as GatewayUsageRows
}

test('goal: the key reads its usage by model and day, as JSON and CSV, as soon as a request has ended', async () => {
  expect((await rowsOf('by=model,day')).rows).toEqual([])
  await (await gateway.chat()).text()
  await (await gateway.chat()).text()
  const { key } = await usageOf(gateway.url)
  const { object, from, to, by, rows, total } = await rowsOf('by=model,day')
  expect([object, by, from, to]).toEqual(['usage.rows', ['model', 'day'], `${to.slice(0, 8)}01`, to])
  expect([rows.length, rows[0]?.key, rows[0]?.requests]).toEqual([1, null, 2])
  expect([rows[0]?.model, rows[0]?.day]).toEqual([gateway.models[0] ?? '', to])
  expect(total).toEqual(key)
  const { prompt_tokens, completion_tokens, cost_usd } = key
  const csv = await askRows('by=model,day&format=csv')
  expect([csv.status, csv.headers.get('content-type')]).toEqual([200, 'text/csv; charset=utf-8'])
  expect(await csv.text()).toBe(
    `day,model,requests,prompt_tokens,completion_tokens,cost_usd\r\n${to},${gateway.models[0]},2,${prompt_tokens},${completion_tokens},${cost_usd}\r\n`,
  )
  expect((await rowsOf('by=key,model,day')).rows[0]?.key).toBe(KEY.split('_')[1] ?? '')
  expect((await rowsOf('by=')).rows).toEqual([{ day: null, key: null, model: null, ...total }])
  expect((await rowsOf('format=json')).rows).toEqual(rows)
  expect((await rowsOf('from=2020-01-01&to=2020-12-31')).rows).toEqual([])
})

test('goal: what is wrong with a query is said of the parameter, and nobody without a key is told anything', async () => {
  const table = [
    ['by=hour', 'by', '"hour" is none of'],
    ['from=2026-02-30', 'from', 'no day like'],
    ['from=2026-11-02&to=2026-11-01', 'to', 'before'],
    ['from=2024-01-01&to=2026-01-01', 'to', '366 days'],
    ['format=xml', 'format', 'json, csv'],
    ['form=csv', 'form', 'from, to, by, format'],
    ['by=day&by=model', 'by', 'once'],
    [`to=${'9'.repeat(4_000)}`, 'to', 'no day like'],
    [`${'x'.repeat(4_000)}=1`, 'x'.repeat(64), 'Unknown parameter'],
  ] as const
  for (const [query, param, words] of table) {
    const response = await askRows(query)
    const { error } = (await response.json()) as GatewayError
    expect([query, response.status, error.code, error.param]).toEqual([query, 400, 'invalid_request', param])
    expect(error.message).toContain(words)
    expect(error.message.length).toBeLessThan(200)
  }
  expect((await askRows('by=day', gateway.url, KEY.replace(/.$/, '_'))).status).toBe(401)
})

/** A key that has used so many models on each of these days of 2026. */
async function* usedDays(days: number, models: number): AsyncGenerator<DaySum[]> {
  for (let at = 0; at < days; at += 1) {
    const day = new Date(Date.UTC(2026, 0, 1 + at)).toISOString().slice(0, 10)
    const sum = { day, requests: 1, promptTokens: 2, completionTokens: 3, costNanoUsd: 4 }
    yield Array.from({ length: models }, (_, index) => ({ ...sum, model: `m${index}` }))
  }
}

test.skipIf(needsHost('what has been used comes from the test'))(
  'more rows than one response has are refused',
  async () => {
    // Goal: a key's usage decides neither memory nor time of the gateway, and an error suggests fewer groups.
    await using gateway = startHostGateway([target(upstream.url)], {
      host: { spent: { shares: null, spent: () => null, load: async () => {}, days: () => usedDays(300, 10) } },
    })
    const refused = await askRows('by=model,day', gateway.url)
    const { error } = (await refused.json()) as GatewayError
    expect([refused.status, error.param, error.message]).toEqual([
      ...[400, 'by', 'these are more than 2000 rows; ask for fewer days, or by less'],
    ])
    const { rows, total } = await rowsOf('by=day', gateway.url)
    expect([rows.length, rows[0]?.requests, total.requests]).toEqual([300, 10, 3_000])
  },
)

// Goal: whoever asks learns exactly what the ledger charges; nobody else gets the header, nor does a stream, whose cost
// is not known when its headers leave, or a request that no upstream was asked for.
test('the cost of a request, with its response', async () => {
  await using priced = startHostGateway([target(upstream.url)])
  const costOf = async (body: Record<string, unknown>, headers: Record<string, string>) => {
    const response = await priced.chat(body, { headers })
    await response.text()
    return [response.status, response.headers.get('x-strongroom-cost-usd')]
  }
  const asks = { 'x-strongroom-cost': '1' }
  // The price of these tests: 7 nano-dollars.
  expect(await costOf({}, asks)).toEqual([200, '0.000000007'])
  expect(await costOf({}, {})).toEqual([200, null])
  expect(await costOf({}, { 'x-strongroom-cost': '0' })).toEqual([200, null])
  expect(await costOf({ stream: true }, asks)).toEqual([200, null])
  expect(await costOf({ model: 'other' }, asks)).toEqual([404, null])
})
