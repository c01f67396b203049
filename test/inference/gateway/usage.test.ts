// Goal: a key reads its own numbers of the running month from the gateway, wherever that runs, as soon as a request has ended.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { GatewayUsage } from '../../../src/contract/inference.ts'
import { eachWithGateway, KEY, startHostGateway, type TestGateway, target } from '../../rigs/gateway-server.ts'
import { needsHost } from '../../rigs/test-gateway.ts'
import type { TestUpstream } from '../../rigs/upstream-server.ts'

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
