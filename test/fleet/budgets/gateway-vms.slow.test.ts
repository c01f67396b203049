// Gateways in VMs on two hosts of a fleet hold one budget by their hosts' shares of it. Real PostgreSQL and books; the
// channel between VM and host is a call with the wire's schemas.

import { expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { type BooksHost, organizationId } from '../../../scripts/rigs/fleet/budgets-host.ts'
import { hasPostgres, type PostgresServer } from '../../../scripts/rigs/postgres/server.ts'
import { startForTests } from '../../../scripts/rigs/postgres/suite.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { MonthSums } from '../../../src/contract/vm/enclave.ts'
import { HostRequest } from '../../../src/contract/vm/enclave-responses.ts'
import { BudgetFault, Budgets } from '../../../src/inference/metering/budgets.ts'
import { createHostSums } from '../../../src/inference/metering/host-sums.ts'
import { amountsIn } from '../../../src/inference/metering/shares/amounts.ts'
import { SpendCache } from '../../../src/inference/metering/spend-cache.ts'
import { UsageSpool } from '../../../src/inference/metering/spool.ts'
import type { HostQueries, LowerInVm, UsageRecord } from '../../../src/inference/metering/types.ts'
import { usageRecordOf } from '../../../src/inference/metering/vm-usage-ledger.ts'
import { advanceBooks, insertGatewayVm, moveGatewayVm } from '../../../src/store/ledger/gateway-vm.query.ts'
import { openBooksFleet } from '../../rigs/fleet/books-fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const nowMs = Date.parse('2026-11-26T12:00Z')
const seed = Number(process.env.STRONGROOM_FLEET_SEED ?? 7)
const clock = { ...systemClock, nowMs: () => nowMs }
const cost = (_: string, { prompt, completion }: { prompt: number; completion: number }) => BigInt(prompt + completion)

let server: PostgresServer

startForTests(started => {
  server = started
})

/** Messages on their way between host and VM. */
type Line = { beforeAnswer?: () => Promise<void>; afterLowered?: () => Promise<void> }

/** A gateway VM on that host. `book`: its host takes what waits. */
function vmOn(host: BooksHost, vmId: string, line: Line = {}) {
  const { directory, store, hostId, metering, shares } = host
  // Nobody on the host knows what is reserved.
  shares.follow(null)
  insertGatewayVm(store.ledger.db, { vmId, hostId, shape: 's', nowMs: 1 })
  moveGatewayVm(store.ledger.db, { vmId, from: ['starting'], to: 'serving', nowMs: 2 })
  const tell = createHostSums({ directory, ledger: store.ledger, hostId, shares, statusOf: () => null })
  const hostRequests: HostQueries = {
    ask: async given => {
      const want: unknown = JSON.parse(JSON.stringify({ id: 'w1', ...given }))
      if (!Value.Check(HostRequest, want) || want.kind !== 'spent') throw new Error('a want that the wire refuses')
      const answer: unknown = JSON.parse(JSON.stringify(await tell.spent(vmId, want)))
      await line.beforeAnswer?.()
      if (!Value.Check(MonthSums, answer)) throw new Error('an answer that the wire refuses')
      return answer
    },
  }
  const spool: UsageSpool = new UsageSpool({
    rowsMax: 10_000,
    sign: () => new Uint8Array(64),
    clock,
    onRow: row => spent.add(row),
  })
  const spent = new SpendCache({ hostRequests, spool, control: { cost }, clock })
  const budgets = new Budgets({ spent, cost: () => cost, clock })
  let count = 0
  /** As src/enclave/gateway.ts has it. */
  const lower: LowerInVm = async scope => {
    const unbooked = spool.unbooked().map(row => ({ ...row, nanoUsd: row.promptTokens, tokens: row.promptTokens }))
    const kept = spent.lower(scope) ? amountsIn(scope, [...budgets.open(), ...unbooked]) : null
    await line.afterLowered?.()
    return kept
  }
  return {
    spent,
    budgets,
    lower,
    reserve: (key: string, tokens: number) =>
      budgets.reserve(host.caller(key), 'm', { worst: { prompt: tokens, completion: 0 }, endUser: null }),
    record: (key: string, tokens: number) => {
      count += 1
      const record: UsageRecord = {
        id: `${vmId}-${count}`,
        atMs: nowMs,
        caller: host.caller(key),
        model: 'm',
        upstream: 'u',
        tokens: { prompt: tokens, completion: 0 },
        tokensSource: 'reported',
        outcome: 'completed',
      }
      void spool.record(record)
    },
    book: () => {
      const batch = spool.next()
      if (batch === null) return
      metering.book(batch.rows.map(usageRecordOf))
      const to = batch.from + batch.rows.length
      advanceBooks(store.ledger.db, { vmId, from: batch.from, to, digest: batch.digest })
      spool.book(to)
    },
  }
}

// Goal: clients of VMs on two hosts never pass a budget together, whatever is booked when, and are shown the bill of
// both.
test.skipIf(missing)('VMs on two hosts', async () => {
  await using fleet = await openBooksFleet(server)
  const hosts = [await fleet.host('east', { nowMs: clock.nowMs }), await fleet.host('west', { nowMs: clock.nowMs })]
  await hosts[0]?.seed({ keys: { k1: 4_000, k2: null }, organization: 6_000 })
  for (const host of hosts) {
    await until('the keys are known', 60_000, () => host.directory.db.all('SELECT 1 FROM gateway_keys').length === 2)
  }
  const vms = hosts.map((host, index) => vmOn(host, `vm${index}`))
  const truth = { k1: 0, k2: 0 }
  let reserved = 0
  let most = 0
  const refusals: string[] = []
  const client = async (index: number) => {
    const draw = createDraw(index + 1)
    const vm = vms[index % 2]
    if (vm === undefined) return
    for (let count = 0; count < 120; count += 1) {
      const key = draw(2) === 0 ? 'k1' : 'k2'
      const worst = 5 + draw(60)
      const release = await vm.reserve(key, worst).catch((error: unknown) => {
        if (!(error instanceof BudgetFault)) throw error
        refusals.push(error.code)
        return null
      })
      if (release !== null) {
        reserved += worst
        most = Math.max(most, truth.k1 + truth.k2 + reserved)
        await Bun.sleep(draw(3))
        const tokens = worst - draw(5)
        truth[key] += tokens
        vm.record(key, tokens)
        release()
        reserved -= worst
      }
      if (draw(3) === 0) vm.book()
    }
  }
  await Promise.all([0, 1, 2, 3, 4, 5].map(client))
  expect(most).toBeLessThanOrEqual(6_000)
  expect(truth.k1).toBeLessThanOrEqual(4_000)
  expect(truth.k1 + truth.k2).toBeGreaterThan(4_000)
  expect(refusals.length).toBeGreaterThan(0)
  for (const [index, vm] of vms.entries()) {
    vm.book()
    const host = hosts[index] as BooksHost
    await until('the bill is known here', 60_000, () => {
      const { organization } = host.metering.spent({ organizationId, keyPrefix: 'k1' }, '2026-11')
      return organization.costNanoUsd === truth.k1 + truth.k2
    })
    await vm.spent.load({ organizationId, keyPrefix: 'k1' }, '2026-11')
    const shown = vm.spent.spent({ organizationId, keyPrefix: 'k1' }, '2026-11')
    expect([shown?.key.costNanoUsd, shown?.organization.costNanoUsd]).toEqual([truth.k1, truth.k1 + truth.k2])
  }
})

// Goal: without the database a VM uses up its host's share, and then clients get 503; afterwards it goes on.
test.skipIf(missing)('the database away', async () => {
  await using fleet = await openBooksFleet(server)
  const host = await fleet.host('east', { nowMs: clock.nowMs, isUnhurried: false })
  await host.seed({ keys: { k1: 1_000 }, organization: null })
  const vm = vmOn(host, 'vm')
  const release = await vm.reserve('k1', 100)
  vm.record('k1', 100)
  release?.()
  fleet.proxy.set('hole')
  await until('it has used up its share', 60_000, async () => {
    const refused = await vm.reserve('k1', 20).then(
      () => null,
      (error: unknown) => error,
    )
    if (refused !== null) expect(refused).toMatchObject({ code: 'metering_unavailable' })
    return refused !== null
  })
  const held = vm.budgets.open().reduce((sum, { nanoUsd }) => sum + nanoUsd, 0)
  expect(held).toBeGreaterThan(100)
  expect(await failure(vm.reserve('k1', 500))).toMatchObject({ code: 'metering_unavailable' })
  fleet.proxy.set('open')
  await until('it goes on', 60_000, () =>
    vm.reserve('k1', 20).then(
      () => true,
      () => false,
    ),
  )
  expect(await failure(vm.reserve('k1', 1_000 - held - 100))).toMatchObject({ code: 'budget_exceeded' })
})

const heldOf = (host: BooksHost, keyPrefix: string) =>
  host.allowances.leaseOf({ organizationId, keyPrefix, month: '2026-11' })?.nanoUsd ?? 0
const looks = async (host: BooksHost, count: number) => {
  for (let look = 0; look < count; look += 1) await host.shares.releaseIdle()
}

// Goal: an idle VM gives back all of a budget but what it has used and reserved, so that another host can have it, and
// asks for more when it needs it again; without its answer nothing is taken from it.
test.skipIf(missing)('a VM gives back', async () => {
  await using fleet = await openBooksFleet(server)
  const [east, west] = [
    await fleet.host('east', { nowMs: clock.nowMs }),
    await fleet.host('west', { nowMs: clock.nowMs }),
  ]
  await east.seed({ keys: { k1: 10_000 }, organization: null })
  await until('the key is known', 60_000, () => west.directory.db.all('SELECT 1 FROM gateway_keys').length === 1)
  const [vm, other] = [vmOn(east, 'vm'), vmOn(west, 'other')]
  const done = await vm.reserve('k1', 500)
  vm.record('k1', 300)
  done?.()
  vm.book()
  const running = await vm.reserve('k1', 100)
  vm.record('k1', 40)
  const block = heldOf(east, 'k1')
  expect(block).toBeGreaterThan(1_000)

  let asked = 0
  const isDeaf = { now: true }
  east.shares.followVm(async scope => {
    asked += 1
    return isDeaf.now ? null : await vm.lower(scope)
  })
  await looks(east, 3)
  expect([asked, heldOf(east, 'k1')]).toEqual([1, block])
  expect((await vm.reserve('k1', 50))?.length).toBe(0)
  isDeaf.now = false
  vm.book()
  await looks(east, 3)
  // Booked: 340; reserved: 150.
  expect([asked, heldOf(east, 'k1')]).toEqual([2, 490])
  expect(await fleet.sql("SELECT nano_usd FROM strongroom.allowances WHERE key_prefix = 'k1'")).toContain('490')
  await looks(east, 3)
  expect(asked).toBe(2)

  const most = await other.reserve('k1', 9_510)
  expect(most).not.toBeNull()
  expect(await failure(vm.reserve('k1', 1))).toMatchObject({ code: 'budget_exceeded' })
  running?.()
  expect((await vm.reserve('k1', 100))?.length).toBe(0)
  expect(await failure(vm.reserve('k1', 1))).toMatchObject({ code: 'budget_exceeded' })
})

// Goal: a part that an answer on its way to the VM brings is not taken back, and while the VM's word on what it keeps
// is on its way, no answer brings it a part.
test.skipIf(missing)('messages that cross', async () => {
  await using fleet = await openBooksFleet(server)
  const host = await fleet.host('east', { nowMs: clock.nowMs })
  await host.seed({ keys: { k1: 10_000 }, organization: null })
  const line: Line = {}
  const vm = vmOn(host, 'vm', line)
  host.shares.followVm(scope => vm.lower(scope))
  const spender = { organizationId, keyPrefix: 'k1' }
  const allowed = () => vm.spent.shares?.share(spender, '2026-11')?.key.allowed.nanoUsd ?? null
  await vm.reserve('k1', 500)
  const block = heldOf(host, 'k1')
  expect(allowed()).toBe(block)

  const answer = Promise.withResolvers<void>()
  line.beforeAnswer = () => answer.promise
  const asking = vm.reserve('k1', block)
  await until('it is granted', 60_000, () => heldOf(host, 'k1') > block)
  const more = heldOf(host, 'k1')
  await looks(host, 3)
  expect(heldOf(host, 'k1')).toBe(more)
  answer.resolve()
  expect(await asking).not.toBeNull()
  expect(allowed()).toBe(more)
  delete line.beforeAnswer

  const word = Promise.withResolvers<void>()
  line.afterLowered = () => word.promise
  // Something has changed, so it is asked again.
  vm.record('k1', 1)
  vm.book()
  const looking = looks(host, 3)
  await until('it counts on nothing', 60_000, () => allowed() === null)
  await vm.spent.load(spender, '2026-11')
  expect(allowed()).toBe(0)
  const next = vm.reserve('k1', 10)
  word.resolve()
  await looking
  expect(await next).not.toBeNull()
  expect(allowed()).toBe(heldOf(host, 'k1'))
  expect(heldOf(host, 'k1')).toBeLessThan(more + 1_000)
})

// Goal: however answers, bookings, questions and requests to lower a budget cross one another, hosts never hold less of
// it than their VMs use, so that no budget is passed.
test.skipIf(missing)('lowered while it is used', async () => {
  await using fleet = await openBooksFleet(server)
  const hosts = [await fleet.host('east', { nowMs: clock.nowMs }), await fleet.host('west', { nowMs: clock.nowMs })]
  await hosts[0]?.seed({ keys: { k1: 3_000, k2: null }, organization: 5_000 })
  for (const host of hosts)
    await until('the keys are known', 60_000, () => host.directory.db.all('SELECT 1 FROM gateway_keys').length === 2)
  const chance = createDraw(seed)
  const late = () => Bun.sleep(chance(3))
  const line: Line = { beforeAnswer: late, afterLowered: late }
  const vms = hosts.map((host, index) => vmOn(host, `vm${index}`, line))
  let lowered = 0
  for (const [index, host] of hosts.entries()) {
    host.shares.followVm(async scope => {
      const kept = (await vms[index]?.lower(scope)) ?? null
      if (kept !== null) lowered += 1
      return kept
    })
  }
  const used = { k1: 0, k2: 0 }
  const ended = new AbortController()
  const looked = hosts.map(() => 0)
  const looking = hosts.map(async (host, at) => {
    while (!ended.signal.aborted) {
      await host.shares.releaseIdle()
      looked[at] = (looked[at] ?? 0) + 1
      await Bun.sleep(chance(4))
    }
  })
  /** Clients rest by the looks of their host: among their requests it finds pauses on any machine. */
  const rest = async (at: number, count: number) => {
    const enough = (looked[at] ?? 0) + count
    await until('it was looked', 60_000, () => (looked[at] ?? 0) >= enough)
  }
  const client = async (index: number) => {
    const draw = createDraw(seed * 100 + index)
    const vm = vms[index % 2]
    if (vm === undefined) return
    for (let count = 0; count < 60; count += 1) {
      const key = draw(2) === 0 ? 'k1' : 'k2'
      const worst = 5 + draw(60)
      const release = await vm.reserve(key, worst).catch((error: unknown) => {
        if (!(error instanceof BudgetFault)) throw error
        return null
      })
      if (release !== null) {
        used[key] += worst
        expect(used.k1).toBeLessThanOrEqual(3_000)
        expect(used.k1 + used.k2).toBeLessThanOrEqual(5_000)
        await rest(index % 2, draw(5))
        const tokens = worst - draw(5)
        vm.record(key, tokens)
        release()
        used[key] -= worst - tokens
      }
      if (draw(3) === 0) vm.book()
      await rest(index % 2, draw(7))
    }
  }
  await Promise.all([0, 1, 2, 3].map(client))
  ended.abort()
  await Promise.all(looking)
  expect(lowered).toBeGreaterThan(5)
  expect(used.k1 + used.k2).toBeGreaterThan(3_000)
})
