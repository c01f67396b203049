// Clients spend one budget over the hosts of a fleet while hosts, their database and the ways to it fail at random, and
// a month ends; a checker looks for a nano-dollar too much, and for rows that are lost or counted twice.
// STRONGROOM_FLEET_SEED repeats a run's choices, STRONGROOM_FLEET_FAULTS asks for more.

import { expect, test } from 'bun:test'
import { runsAll } from '../../../scripts/rigs/all.ts'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { hasPostgres, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { type BooksProcess, FaultedBooks } from '../../rigs/fleet/faulted-books.ts'

const seed = Number(process.env.STRONGROOM_FLEET_SEED ?? Date.now() % 1_000_000)
const faultCount = Number(process.env.STRONGROOM_FLEET_FAULTS ?? (runsAll ? 16 : 4))
const hostCount = 3
const settleMs = 60_000
const budgets = { keys: { k1: 40_000, k2: null }, organization: 60_000 }

/** The clock of all hosts begins in the middle of a month, whenever this runs. */
const aheadOf = (time: string) => Date.parse(time) - Date.now()

// Goal: no fault lets a budget be passed, loses a row that was acknowledged or counts one twice, over the end of a
// month.
test.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
  'random faults while a budget is spent',
  async () => {
    process.stdout.write(`STRONGROOM_FLEET_SEED=${seed} STRONGROOM_FLEET_FAULTS=${faultCount}\n`)
    await using server = await startPostgres()
    await using fleet = await FaultedBooks.open(server, { hostCount, seed, budgets })
    await fleet.setAhead(aheadOf('2026-11-15T12:00Z'))
    const ended = new AbortController()
    const client = async (index: number) => {
      const draw = createDraw(seed + index + 1)
      while (!ended.signal.aborted) {
        const host = fleet.hosts[draw(hostCount)] as BooksProcess
        const most = 1 + draw(400)
        const tokens = draw(3) === 0 ? most : 1 + draw(most)
        const status = await fleet.spend(host, draw(2) === 0 ? 'k1' : 'k2', { most, tokens, holdMs: draw(40) })
        if (status !== 200) await Bun.sleep(50)
      }
    }
    const clients = Promise.all(Array.from({ length: 6 }, (_, index) => client(index)))
    for (let count = 0; count < faultCount; count += 1) {
      if (count === Math.floor(faultCount / 2)) await fleet.setAhead(aheadOf('2026-11-30T23:59:58Z'))
      await Promise.race([fleet.fault(), clients])
    }
    ended.abort()
    await clients
    for (const { proxy } of fleet.hosts) proxy.set('open')
    await fleet.startAll()

    const months = ['2026-11', '2026-12']
    const books = (month: string) => fleet.hosts.map(host => fleet.booksOf(host, month))
    const spentIn = (month: string, key: string | null) =>
      books(month)
        .flatMap(({ rows }) => rows)
        .filter(({ key_prefix }) => key === null || key_prefix === key)
        .reduce((sum, { cost_nano_usd }) => sum + cost_nano_usd, 0)
    // To the end of the budget, too: whatever hosts still hold has to fit.
    await fleet.setAhead(aheadOf('2026-12-15T12:00Z'))
    await until('the budget is spent', settleMs, async () => {
      const statuses = await Promise.all(
        fleet.hosts.map(host => fleet.spend(host, 'k2', { most: 600, tokens: 600, holdMs: 0 })),
      )
      return statuses.every(status => status === 429) && spentIn('2026-12', null) > 59_400
    }).catch(error => {
      throw new Error([error.message, ...fleet.faults, JSON.stringify([...fleet.answers]), fleet.logs()].join('\n'))
    })
    for (const month of months) {
      expect([month, spentIn(month, 'k1')]).toEqual([month, Math.min(40_000, spentIn(month, 'k1'))])
      expect([month, spentIn(month, null)]).toEqual([month, Math.min(60_000, spentIn(month, null))])
    }
    const rows = months.flatMap(month => books(month).flatMap(({ rows }) => rows))
    expect(new Set(rows.map(({ id }) => id)).size).toBe(rows.length)
    const byId = new Map(rows.map(({ id, cost_nano_usd }) => [id, cost_nano_usd]))
    for (const [id, tokens] of fleet.acknowledged) expect([id, byId.get(id)]).toEqual([id, tokens])

    await until('everything is reported, and the same everywhere', settleMs, () => {
      const all = months.map(month => books(month).map(({ sums }) => JSON.stringify(sums)))
      return all.every(sums => new Set(sums).size === 1) && spentIn('2026-12', null) > 0
    })
    for (const month of months) {
      const own = books(month).map(({ rows }) => rows.length)
      const [first] = books(month)
      const counted = first?.sums
        .filter(({ key_prefix }) => key_prefix === '')
        .reduce((sum, { requests }) => sum + requests, 0)
      expect([month, counted]).toEqual([month, own.reduce((a, b) => a + b, 0)])
      const [shown] = await Promise.all(fleet.hosts.map(host => fleet.viewOf(host, month)))
      expect(JSON.parse(shown ?? '{}').organization.costNanoUsd).toBe(spentIn(month, null))
    }
    process.stdout.write(
      `${fleet.faults.length} faults: ${rows.length} rows, ${fleet.acknowledged.size} acknowledged, ` +
        `${months.map(month => `${month} ${spentIn(month, null)}`).join(', ')}, answers ${JSON.stringify([...fleet.answers])}\n`,
    )
  },
  600_000,
)
