// Gateways in VMs on two hosts of a fleet hold one budget by their hosts' shares of it. Real PostgreSQL and books; the
// channel between VM and host is a call with the wire's schemas.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { type BooksHost, organizationId } from '../../../scripts/rigs/fleet/books-host.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { MonthSums, Want } from '../../../src/contract/vm/enclave.ts'
import { BudgetFault, Budgets } from '../../../src/inference/metering/budgets.ts'
import { createHostSums } from '../../../src/inference/metering/host-sums.ts'
import { usageRecordOf } from '../../../src/inference/metering/row.ts'
import { Spent } from '../../../src/inference/metering/spent.ts'
import { UsageSpool } from '../../../src/inference/metering/spool.ts'
import type { HostQueries, UsageRecord } from '../../../src/inference/metering/types.ts'
import { advanceBooks, insertGateway, moveGateway } from '../../../src/store/ledger/gateway.query.ts'
import { createDraw } from '../../rigs/draw.ts'
import { openBooksFleet } from '../../rigs/fleet/books-fleet.ts'

const missing = skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)')
const nowMs = Date.parse('2026-11-26T12:00Z')
const clock = { ...systemClock, nowMs: () => nowMs }
const cost = (_: string, { prompt, completion }: { prompt: number; completion: number }) => BigInt(prompt + completion)

let server: PostgresServer

beforeAll(async () => {
  if (hasPostgres) server = await startPostgres()
}, 60_000)
afterAll(async () => {
  await server?.[Symbol.asyncDispose]()
})

/** A gateway VM on that host. `book`: its host takes what waits. */
function vmOn(host: BooksHost, vmId: string) {
  const { directory, store, hostId, metering, shares } = host
  insertGateway(store.ledger.db, { vmId, hostId, shape: 's', nowMs: 1 })
  moveGateway(store.ledger.db, { vmId, from: ['starting'], to: 'serving', nowMs: 2 })
  const tell = createHostSums({ directory, ledger: store.ledger, hostId, shares, statusOf: () => null })
  const wants: HostQueries = {
    ask: async given => {
      const want: unknown = JSON.parse(JSON.stringify({ id: 'w1', ...given }))
      if (!Value.Check(Want, want) || want.kind !== 'spent') throw new Error('a want that the wire refuses')
      const answer: unknown = JSON.parse(JSON.stringify(await tell.spent(vmId, want)))
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
  const spent = new Spent({ wants, spool, control: { cost }, clock })
  const budgets = new Budgets({ spent, cost: () => cost, clock })
  let count = 0
  return {
    spent,
    budgets,
    reserve: (key: string, tokens: number) => budgets.reserve(host.caller(key), 'm', { prompt: tokens, completion: 0 }),
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
    // No host takes back a share that its VM has.
    host.shares.follow(null)
    await until('the keys are known', 5_000, () => host.directory.db.all('SELECT 1 FROM gateway_keys').length === 2)
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
    await until('the bill is known here', 10_000, () => {
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
  const host = await fleet.host('east', { nowMs: clock.nowMs })
  await host.seed({ keys: { k1: 1_000 }, organization: null })
  host.shares.follow(null)
  const vm = vmOn(host, 'vm')
  const release = await vm.reserve('k1', 100)
  vm.record('k1', 100)
  release?.()
  fleet.proxy.set('hole')
  await until('it has used up its share', 10_000, async () => {
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
  await until('it goes on', 10_000, () =>
    vm.reserve('k1', 20).then(
      () => true,
      () => false,
    ),
  )
  expect(await failure(vm.reserve('k1', 1_000 - held - 100))).toMatchObject({ code: 'budget_exceeded' })
})
