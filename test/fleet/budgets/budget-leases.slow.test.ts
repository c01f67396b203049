// Budgets over the hosts of a fleet: never passed, whatever runs at the same time. Real PostgreSQL, a nano-dollar a
// token.

import { expect, test } from 'bun:test'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { type BooksHost, organizationId } from '../../../scripts/rigs/fleet/budgets-host.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { BudgetFault } from '../../../src/inference/metering/budgets.ts'
import { findGatewayKey, setGatewayKeyTerms } from '../../../src/store/directory/gateway-key.query.ts'
import { prepareOwnMonthSum } from '../../../src/store/directory/usage/usage-hosts.query.ts'
import { type BooksFleet, openBooksFleet } from '../../rigs/fleet/books-fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const november = Date.parse('2026-11-26T12:00Z')
const seed = Number(process.env.STRONGROOM_FLEET_SEED ?? 7)

let server: PostgresServer

startForTests(started => {
  server = started
})

type Time = { nowMs: number }

async function hostsOf(fleet: BooksFleet, count: number, isUnhurried = true): Promise<BooksHost[]> {
  const hosts: BooksHost[] = []
  for (let index = 0; index < count; index += 1) {
    hosts.push(await fleet.host(`host-${index}`, { nowMs: () => november, isUnhurried }))
  }
  return hosts
}

async function budgeted(hosts: readonly BooksHost[], key: number | null, organization: number | null): Promise<void> {
  const [first] = hosts
  await first?.seed({ keys: { k1: key, k2: key }, organization })
  for (const { fleet } of hosts) {
    await until('the keys are known', 60_000, () => fleet.view().version >= (first?.fleet.view().version ?? 0))
  }
}

const spentOf = (hosts: readonly BooksHost[], keyPrefix = 'k1', month = '2026-11') =>
  hosts
    .map(({ metering, directory }) => {
      metering.flush()
      return prepareOwnMonthSum(directory.db)({ organizationId, keyPrefix, month }).costNanoUsd
    })
    .reduce((a, b) => a + b, 0)

/** Null if it was not refused. */
async function refusal(work: Promise<unknown>): Promise<{ code: string; mayFitSoon: boolean } | null> {
  const error = await work.then(
    () => null,
    (error: unknown) => error,
  )
  if (error === null) return null
  if (error instanceof BudgetFault) return { code: error.code, mayFitSoon: error.mayFitSoon }
  const code: unknown = Reflect.get(Object(error), 'code')
  if (typeof code !== 'string') throw error
  return { code, mayFitSoon: false }
}

const exceeded = { code: 'budget_exceeded', mayFitSoon: false }

async function idle(hosts: readonly BooksHost[]): Promise<void> {
  for (let look = 0; look < 2; look += 1) for (const { shares } of hosts) await shares.releaseIdle()
}

// Goal: clients on all hosts at once spend a budget to its end and never past it, for a key and for an organization,
// what is reserved included.
test.skipIf(missing)('a budget spent from five hosts at once', async () => {
  await using fleet = await openBooksFleet(server)
  const hosts = await hostsOf(fleet, 5)
  await budgeted(hosts, 3_000, 5_000)
  const draw = createDraw(seed)
  let most = 0
  let reservedNow = 0
  const client = async (host: BooksHost, key: string) => {
    for (let count = 0; count < 60; count += 1) {
      const worst = 20 + draw(30)
      const release = await host.reserve(key, worst).catch((error: unknown) => {
        // While the database is there a refusal says that the budget has no room.
        if (error instanceof BudgetFault) return null
        throw error
      })
      if (release === null) continue
      reservedNow += worst
      most = Math.max(most, spentOf(hosts, '') + reservedNow)
      await Bun.sleep(draw(3))
      host.book(key, worst - draw(10))
      reservedNow -= worst
      release()
    }
  }
  await Promise.all(hosts.flatMap(host => ['k1', 'k2', 'k1'].map(key => client(host, key))))
  expect(most).toBeLessThanOrEqual(5_000)
  for (const key of ['k1', 'k2']) expect(spentOf(hosts, key)).toBeLessThanOrEqual(3_000)
  // Unused blocks come back, and then all of it can be spent.
  await idle(hosts)
  await until('the rest is spent', 60_000, async () => {
    for (const host of hosts) while ((await refusal(host.spend('k1', 1))) === null);
    for (const host of hosts) while ((await refusal(host.spend('k2', 1))) === null);
    await idle(hosts)
    return spentOf(hosts, '') === 5_000
  })
  const [first] = hosts
  await until(
    'others have reported',
    60_000,
    () => first?.metering.spent({ organizationId, keyPrefix: 'k1' }, '2026-11').organization.costNanoUsd === 5_000,
  )
  expect(await refusal(first?.reserve('k2', 1) ?? Promise.resolve())).toEqual(exceeded)
})

// Goal: an exhausted budget costs the database a statement a second at most, however many requests come.
test.skipIf(missing)('refusals are remembered for a second', async () => {
  await using fleet = await openBooksFleet(server)
  const hosts = await hostsOf(fleet, 2)
  const [east, west] = [hosts[0] as BooksHost, hosts[1] as BooksHost]
  await budgeted(hosts, 100, null)
  await east.spend('k1', 100)
  const before = west.postgres.view().statementCount
  for (let count = 0; count < 200; count += 1) {
    expect(await refusal(west.reserve('k1', 1))).toMatchObject({ code: 'budget_exceeded' })
  }
  expect(west.postgres.view().statementCount - before).toBeLessThan(30)
  expect(east.allowances.view()).toMatchObject({ held: 1, granted: 1, refused: 0, failed: 0 })
  expect(west.allowances.view()).toMatchObject({ granted: 0, refused: 200 })
})

// Goal: room that another host holds and does not use is there soon: once it has been given back, the request fits.
test.skipIf(missing)('unused blocks come back', async () => {
  await using fleet = await openBooksFleet(server)
  const hosts = await hostsOf(fleet, 2)
  const [east, west] = [hosts[0] as BooksHost, hosts[1] as BooksHost]
  await budgeted(hosts, 1_000, null)
  const release = await east.reserve('k1', 600)
  expect(await refusal(west.reserve('k1', 500))).toEqual({ code: 'budget_exceeded', mayFitSoon: true })
  await idle(hosts)
  expect(await refusal(west.reserve('k1', 500))).toEqual({ code: 'budget_exceeded', mayFitSoon: true })
  // The part that east has reserved stays its own.
  expect((await fleet.sql("SELECT sum(nano_usd) FROM strongroom.allowances WHERE key_prefix = 'k1'")).trim()).toBe(
    '600',
  )
  east.book('k1', 10)
  release?.()
  await idle(hosts)
  await until('it fits', 60_000, async () => (await refusal(west.spend('k1', 990))) === null)
  expect(spentOf(hosts)).toBe(1_000)
})

// Goal: with the database away a host goes on with what it has, then says that it does not know; over a restart, too.
test.skipIf(missing)('the database away', async () => {
  await using fleet = await openBooksFleet(server)
  const hosts = await hostsOf(fleet, 2, false)
  const [east, west] = [hosts[0] as BooksHost, hosts[1] as BooksHost]
  await budgeted(hosts, 1_000, null)
  await east.spend('k1', 100)
  const { nanoUsd } = east.allowances.leaseOf({ organizationId, keyPrefix: 'k1', month: '2026-11' }) ?? { nanoUsd: 0 }
  expect(nanoUsd).toBeGreaterThan(150)
  fleet.proxy.set('hole')
  await east.spend('k1', 50)
  expect(await refusal(east.spend('k1', 1_000))).not.toBeNull()
  await until('nothing is known any more', 60_000, async () => {
    const refused = await refusal(east.spend('k1', 10))
    return refused?.code === 'metering_unavailable'
  })
  expect(spentOf([east])).toBeLessThanOrEqual(nanoUsd)
  expect(await refusal(west.reserve('k1', 1))).toEqual({ code: 'metering_unavailable', mayFitSoon: false })
  fleet.proxy.set('open')
  await until('it goes on', 60_000, async () => (await refusal(west.spend('k1', 100))) === null)
  await until('all of it can be spent', 60_000, async () => {
    for (const host of hosts) while ((await refusal(host.spend('k1', 1))) === null);
    await idle(hosts).catch(() => {})
    return spentOf(hosts) === 1_000
  })
})

// Goal: a request that began in one month may end in the next: on no host does the new month begin with room that such
// requests need, whichever host begins it, with any order of clocks.
test.skipIf(missing)('a month ends', async () => {
  await using fleet = await openBooksFleet(server)
  const times = [{ nowMs: Date.parse('2026-11-30T23:59Z') }, { nowMs: Date.parse('2026-11-30T23:59Z') }]
  const east = await fleet.host('east', { nowMs: () => times[0]?.nowMs ?? 0 })
  const west = await fleet.host('west', { nowMs: () => times[1]?.nowMs ?? 0 })
  const hosts = [east, west]
  await budgeted(hosts, 1_000, null)
  await east.spend('k1', 200)
  const running = await east.reserve('k1', 300)
  const december = Date.parse('2026-12-01T00:00:01Z')
  ;(times[1] as Time).nowMs = december
  // East's clock is behind: it still begins requests in November, which may end in December.
  const fits = async (tokens: number) => (await refusal(west.spend('k1', tokens))) === null
  expect(await fits(100)).toBe(true)
  const late = await east.reserve('k1', 300)
  let spent = 100
  while (await fits(10)) spent += 10
  expect(spent).toBeLessThanOrEqual(400)
  ;(times[0] as Time).nowMs = december
  for (const [release, tokens] of [
    [running, 300],
    [late, 300],
  ] as const) {
    east.book('k1', tokens)
    release?.()
  }
  expect(spentOf(hosts, 'k1', '2026-12')).toBeLessThanOrEqual(1_000)
  await idle(hosts)
  await until('the month can be spent whole', 60_000, async () => {
    for (const host of hosts) while ((await refusal(host.spend('k1', 1))) === null);
    await idle(hosts)
    return spentOf(hosts, 'k1', '2026-12') === 1_000
  })
})

// Goal: a raised budget is spent on every host, a lowered one holds on every host at once it is known there.
test.skipIf(missing)('a budget that changes', async () => {
  await using fleet = await openBooksFleet(server)
  const hosts = await hostsOf(fleet, 2)
  await budgeted(hosts, 500, null)
  const set = async (budgetNanoUsd: number | null) => {
    const [east] = hosts
    await east?.fleet.store.change(tx => {
      const key = findGatewayKey(tx, 'k1')
      if (key !== null) setGatewayKeyTerms(tx, 'k1', { ...key, budgetNanoUsd })
    })
    for (const host of hosts) {
      await until('known', 60_000, () => host.caller('k1').budgets.key.nanoUsd === budgetNanoUsd)
    }
  }
  const spend = async () => {
    for (const host of hosts) while ((await refusal(host.spend('k1', 5))) === null);
    await idle(hosts)
    return spentOf(hosts)
  }
  const spendAll = async (budget: number) => {
    await until('all of it is spent', 60_000, async () => (await spend()) >= budget)
    // A refusal is remembered for a second: after it the budget itself refuses.
    await Bun.sleep(1_050)
    expect(await spend()).toBe(budget)
  }
  await spendAll(500)
  await set(800)
  await spendAll(800)
  await set(300)
  for (const host of hosts) expect(await refusal(host.reserve('k1', 1))).toEqual(exceeded)
  await set(null)
  for (const host of hosts) await host.spend('k1', 700)
  // Spending without a budget counts for the next one.
  await set(2_400)
  await until('reported', 60_000, () =>
    hosts.every(
      ({ metering }) => metering.spent({ organizationId, keyPrefix: 'k1' }, '2026-11').key.costNanoUsd === 2_200,
    ),
  )
  await spendAll(2_400)
})

// Goal: nobody gets the part of a budget that a forgotten host may still spend in this month; a host that the fleet
// does not have gets nothing more.
test.skipIf(missing)('a forgotten host', async () => {
  await using fleet = await openBooksFleet(server)
  const hosts = await hostsOf(fleet, 2)
  const [east, west] = [hosts[0] as BooksHost, hosts[1] as BooksHost]
  await budgeted(hosts, 1_000, null)
  await west.spend('k1', 100)
  await fleet.sql(
    `BEGIN; SELECT strongroom.begin_change(true); DELETE FROM strongroom.hosts WHERE id = '${west.hostId}'; COMMIT`,
  )
  const { nanoUsd } = west.allowances.leaseOf({ organizationId, keyPrefix: 'k1', month: '2026-11' }) ?? { nanoUsd: 0 }
  while ((await refusal(east.spend('k1', 5))) === null);
  expect(spentOf([east])).toBeLessThanOrEqual(1_000 - nanoUsd)
  while ((await refusal(west.spend('k1', 5))) === null);
  expect(await refusal(west.spend('k1', 5))).toMatchObject({ code: 'metering_unavailable' })
  expect(spentOf(hosts)).toBeLessThanOrEqual(1_000)
  expect(spentOf(hosts)).toBeGreaterThan(980)
})

// Goal: a server that takes over may lack the newest grants: nothing is granted there before every host has said what
// it has, and then nothing that another one has.
test.skipIf(missing)('another server that lacks grants', async () => {
  await using fleet = await openBooksFleet(server)
  const hosts = await hostsOf(fleet, 2)
  const [east, west] = [hosts[0] as BooksHost, hosts[1] as BooksHost]
  await budgeted(hosts, 1_000, null)
  for (const { allowances } of hosts) await allowances.registerIfNew()
  await west.spend('k1', 100)
  const held = await west.reserve('k1', 500)
  // As after a failover: the grant is lost, and the entries are those of the server before.
  await fleet.sql('DELETE FROM strongroom.allowances; UPDATE strongroom.allowance_entries SET timeline = timeline - 1')
  expect(await refusal(east.reserve('k1', 300))).toMatchObject({ code: 'metering_unavailable' })
  await east.allowances.registerAgain()
  await west.allowances.registerAgain()
  await until('a second is over', 60_000, async () => (await refusal(east.spend('k1', 1))) === null)
  while ((await refusal(east.spend('k1', 5))) === null);
  expect(spentOf([east])).toBeLessThanOrEqual(400)
  west.book('k1', 500)
  held?.()
  expect(spentOf(hosts)).toBeLessThanOrEqual(1_000)
})

// Goal: a key without a budget costs no statement; an organization that the fleet does not have is granted nothing.
test.skipIf(missing)('no budget, no statement', async () => {
  await using fleet = await openBooksFleet(server)
  const [host] = await hostsOf(fleet, 1)
  await host?.seed({ keys: { k1: null }, organization: null })
  const before = host?.postgres.view().statementCount ?? 0
  for (let count = 0; count < 100; count += 1) expect(await host?.reserve('k1', 5)).toBeNull()
  expect((host?.postgres.view().statementCount ?? 0) - before).toBeLessThan(10)
  expect(
    await failure(
      host?.allowances.acquire({ organizationId: 'nobody', keyPrefix: '', month: '2026-11' }, () => {
        const least = { nanoUsd: 1, tokens: 1 }
        return { used: least, need: least, want: least }
      }) ?? Promise.resolve(),
    ),
  ).toMatchObject({ code: 'fleet.unavailable' })
})
