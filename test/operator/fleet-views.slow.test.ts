// Budgets and usage of a fleet as the operator of either host sees them. Real PostgreSQL, a nano-dollar a token.

import { expect, test } from 'bun:test'
import { type BooksHost, organizationId } from '../../scripts/rigs/fleet/budgets-host.ts'
import { hasPostgres, type PostgresServer } from '../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { until } from '../../scripts/rigs/until.ts'
import { systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { budgetFields } from '../../src/cli/operator/budget.ts'
import type { AdminGatewayKey, AdminOrganization } from '../../src/contract/admin/admin.ts'
import type { AdminUsage } from '../../src/contract/admin/usage.ts'
import { offeredModels } from '../../src/contract/key-rules.ts'
import { createFleetAdmin } from '../../src/fleet/hosts/fleet-admin.ts'
import { mintGatewayKey } from '../../src/inference/keys/authenticate.ts'
import { createAdmin } from '../../src/operator/api.ts'
import type { AdminDeps } from '../../src/operator/deps.ts'
import { prepareMonthSum } from '../../src/store/directory/usage/usage-month.query.ts'
import { asRoot, NO_ADMINISTRATORS } from '../rigs/admin.ts'
import { openBooksFleet } from '../rigs/fleet/books-fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const november = Date.parse('2026-11-26T12:00Z')

let server: PostgresServer

startForTests(started => {
  server = started
})

/** GET and POST of a host's operator. */
function operatorOf({ store, hostId, postgres }: BooksHost) {
  const clock = { ...systemClock, nowMs: () => november }
  const admin = asRoot(
    createAdmin({
      ...NO_ADMINISTRATORS,
      ...{ store, clock, log: silentLogger, random: systemRandom, mintGatewayKey },
      offeredModels: offeredModels([]),
      fleet: createFleetAdmin({ postgres, hostId, clock }),
      gateway: 'off',
      collectors: [],
    } as unknown as AdminDeps),
  )
  const asked = async <T>(path: string, init: RequestInit = {}): Promise<T> => {
    const response = await admin(new Request(`http://admin${path}`, init))
    if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`)
    return (await response.json()) as T
  }
  return {
    organization: () => asked<AdminOrganization>('/organizations/acme'),
    organizations: async () => (await asked<{ organizations: AdminOrganization[] }>('/organizations')).organizations,
    keys: async () => (await asked<{ keys: AdminGatewayKey[] }>('/organizations/acme/gateway-keys')).keys,
    usage: () => asked<AdminUsage>('/organizations/acme/usage?from=2026-11-01&to=2026-11-30&by=key'),
    post: <T>(path: string, body: unknown) =>
      asked<T>(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
  }
}

// Goal: whichever host's operator asks, budgets, keys and usage are the sums over the hosts, and what hosts have of a
// budget beside what they have spent is said; without the database that is unknown, and all else is there.
test.skipIf(missing)('one view of two hosts', async () => {
  await using fleet = await openBooksFleet(server)
  const options = { nowMs: () => november, isUnhurried: false }
  const [east, west] = [await fleet.host('east', options), await fleet.host('west', options)]
  await east.seed({ keys: { k1: 400_000, k2: null }, organization: 1_000_000 })
  await until('the keys are known', 60_000, () => west.fleet.view().version >= east.fleet.view().version)
  const operators = [operatorOf(east), operatorOf(west)]
  for (const operator of operators) {
    expect(await operator.organization()).toMatchObject({ month_held_usd: '0.000000000', month_held_tokens: null })
  }

  await east.spend('k1', 3_000)
  await west.spend('k1', 50_000, 20_000)
  await west.spend('k2', 7_000)
  for (const { metering } of [east, west]) metering.flush()
  const sumOn = ({ directory }: BooksHost) =>
    prepareMonthSum(directory.db)({ organizationId, keyPrefix: '', month: '2026-11' }).costNanoUsd
  await until('the sums are everywhere', 60_000, () => [east, west].every(host => sumOn(host) === 30_000))

  const heldOf = async (key: string) =>
    Number(
      await fleet.sql(`SELECT sum(a.nano_usd - u.cost_nano_usd) FROM strongroom.allowances a
        JOIN strongroom.usage_months u USING (organization_id, key_prefix, month)
        WHERE month = '2026-11' AND key_prefix = '${key}' AND split_part(u.host_id, '/', 1) = a.host_id`),
    )
  const [held, heldOfKey] = [await heldOf(''), await heldOf('k1')]
  expect(Math.min(held, heldOfKey)).toBeGreaterThan(30_000)
  const usd = (nano: number) => `0.${String(nano).padStart(9, '0')}`
  for (const operator of operators) {
    const shown = {
      ...{ slug: 'acme', budget_usd: '0.001000000', month_cost_usd: '0.000030000', month_tokens: 30_000 },
      ...{ month_held_usd: usd(held), month_held_tokens: null },
    }
    expect(await operator.organization()).toMatchObject(shown)
    expect(await operator.organizations()).toMatchObject([shown])
    expect(await operator.post<AdminOrganization>('/organizations/acme/budget', {})).toMatchObject(shown)
    expect(budgetFields(await operator.organization())[0]?.[1]).toContain(`, hosts hold ${Number(usd(held))}`)
    const keys = await operator.keys()
    expect(keys.toSorted((a, b) => (a.prefix < b.prefix ? -1 : 1))).toMatchObject([
      { prefix: 'k1', month_cost_usd: '0.000023000', month_tokens: 23_000, month_held_usd: usd(heldOfKey) },
      { prefix: 'k2', month_cost_usd: '0.000007000', month_tokens: 7_000, month_held_usd: null },
    ])
    expect(await operator.post<AdminGatewayKey>('/gateway-keys/k1/terms', {})).toMatchObject({
      month_held_usd: usd(heldOfKey),
    })
    const { rows, total } = await operator.usage()
    expect(rows.map(({ key, cost_usd: cost }) => [key, cost])).toEqual([
      ['k1', '0.000023000'],
      ['k2', '0.000007000'],
    ])
    expect(total).toMatchObject({ requests: 3, cost_usd: '0.000030000' })
  }

  fleet.proxy.set('hole')
  for (const [index, host] of [east, west].entries()) {
    await until('it is away', 60_000, () => !host.postgres.view().isReachable)
    expect(await operators[index]?.organization()).toMatchObject({
      ...{ month_cost_usd: '0.000030000', month_held_usd: null, month_held_tokens: null },
    })
    expect((await operators[index]?.keys())?.length).toBe(2)
  }
})
