// Two real gateways of two hosts and one key: HTTP, a scripted upstream, real PostgreSQL. A nano-dollar a token.

import { expect, test } from 'bun:test'
import { type BooksHost, organizationId } from '../../../scripts/rigs/fleet/budgets-host.ts'
import { MODEL, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, USAGE } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { hasPostgres, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { insertGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { monthOf } from '../../../src/store/directory/usage/periods.ts'
import { openBooksFleet } from '../../rigs/fleet/books-fleet.ts'
import { startRealHostGateway } from '../../rigs/gateway/real-gateway.ts'

/** The clock of both hosts begins in the middle of a month, whenever this runs. */
const aheadMs = Date.parse('2026-11-15T12:00Z') - Date.now()
const clock = { ...systemClock, nowMs: () => systemClock.nowMs() + aheadMs }
const body = { model: MODEL, max_tokens: 100, messages: [{ role: 'user', content: 'hello' }] }

/** As its clients have it. */
type Usage = { readonly key: { readonly requests: number; readonly cost_usd: string } }

// Goal: clients of two gateways spend one budget and get one bill: by month, by day, and by the operator's sums.
test.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
  'two gateways, one key',
  async () => {
    await using server = await startPostgres()
    await using fleet = await openBooksFleet(server)
    const upstream = await startUpstream()
    await using ended = new AsyncDisposableStack()
    ended.defer(() => upstream.stop())
    const options = { runs: true, nowMs: clock.nowMs }
    const [east, west] = [await fleet.host('east', options), await fleet.host('west', options)]
    await east.seed({ keys: {}, organization: 3_000 })
    const { key, prefix, secretSha256 } = mintGatewayKey(systemRandom)
    const terms = { requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null }
    const budget = { budgetNanoUsd: 2_000, budgetTokens: null }
    await east.fleet.store.change(tx =>
      insertGatewayKey(tx, { ...terms, ...budget, organizationId, instanceId: null, nowMs: 1, prefix, secretSha256 }),
    )
    await until('the key is known', 60_000, () => west.fleet.view().version >= east.fleet.view().version)
    const gatewayOf = ({ directory, metering }: BooksHost) =>
      startRealHostGateway(
        [target(upstream.url, { contextTokens: 150 })],
        {},
        {
          store: directory,
          metering,
          clock,
          close: () => {},
        },
      )
    await using first = gatewayOf(east)
    await using second = gatewayOf(west)
    const gateways = [first, second]
    const ask = async (index: number) => {
      const response = await (gateways[index % 2] ?? first).post('/v1/chat/completions', body, { key })
      const { error } = (await response.json()) as { error?: { code: string } }
      return { status: response.status, code: error?.code, retryAfter: response.headers.get('retry-after') }
    }
    // Each costs 14, and may cost 250: eight fit at once at the most, on both gateways together.
    const rounds = []
    for (let round = 0; round < 20; round += 1) {
      rounds.push(...(await Promise.all(Array.from({ length: 10 }, (_, index) => ask(index)))))
    }
    const served = rounds.filter(({ status }) => status === 200).length
    const refused = rounds.filter(({ status }) => status !== 200)
    expect(new Set(refused.map(({ code }) => code))).toEqual(new Set(['budget_exceeded']))
    // 429 while running requests may leave room, 402 once the budget is spent.
    expect(refused.filter(({ status }) => status !== 402 && status !== 429)).toEqual([])
    expect(refused.every(({ status, retryAfter }) => (retryAfter === null) === (status === 402))).toBe(true)
    expect(served).toBeGreaterThan(60)
    expect(served * USAGE.total_tokens).toBeLessThanOrEqual(2_000)

    const cost = `0.${String(served * USAGE.total_tokens).padStart(9, '0')}`
    const get = async (url: string, path: string): Promise<Usage & { readonly total: Usage['key'] }> => {
      const response = await fetch(url + path, { headers: { authorization: `Bearer ${key}` } })
      return (await response.json()) as Usage & { readonly total: Usage['key'] }
    }
    for (const { url } of gateways) {
      await until('all of it is shown', 60_000, async () => (await get(url, '/v1/usage')).key.requests === served)
      expect((await get(url, '/v1/usage')).key.cost_usd).toBe(cost)
      expect((await get(url, '/v1/usage?by=model,day')).total).toMatchObject({ requests: served, cost_usd: cost })
    }
    const month = monthOf(clock.nowMs())
    for (const { metering } of [east, west]) {
      expect(metering.spent({ organizationId, keyPrefix: prefix }, month).organization.requests).toBe(served)
    }
    expect(await fleet.sql('SELECT count(DISTINCT host_id) FROM strongroom.usage_months')).toContain('2')
  },
  120_000,
)
