// Goal: no budget is ever passed, whatever runs at the same time, and after a restart: a real ledger, a manual clock.

import { expect, test } from 'bun:test'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { BudgetFault, Budgets, type Release } from '../../../src/inference/metering/budgets.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { createCost } from '../../../src/inference/metering/price.ts'
import type { Budget, Caller } from '../../../src/inference/types.ts'
import { callerOf, openLedger } from '../../rigs/gateway/keys.ts'

const model = 'm'
const none: Budget = { nanoUsd: null, tokens: null }
// A dollar a million tokens: 1,000 nano-dollars each.
const cost = createCost([{ model, prompt_usd_per_million: '1', completion_usd_per_million: '1' }])
const november = Date.parse('2026-11-22T12:00Z')

function bench() {
  const ledger = openLedger()
  const { store, clock, log } = ledger
  let nowMs = november
  const open = () => {
    const metering = new Metering({ store, clock, log, cost })
    return { metering, budgets: new Budgets({ spent: metering, cost: () => cost, clock: { nowMs: () => nowMs } }) }
  }
  let count = 0
  const record = (metering: Metering, caller: Caller, tokens: number) => {
    count += 1
    metering.record({
      id: `r${count}`,
      atMs: nowMs,
      caller,
      model,
      upstream: 'u',
      tokens: { prompt: tokens, completion: 0 },
      tokensSource: 'reported',
      outcome: 'completed',
    })
  }
  const setNow = (ms: number) => {
    nowMs = ms
  }
  return { open, record, setNow, [Symbol.dispose]: () => ledger[Symbol.dispose]() }
}

const budgeted = (keyPrefix: string, key: Budget, organization: Budget = none) =>
  callerOf({ keyPrefix, budgets: { key, organization } })

async function refusalOf(work: Promise<unknown>): Promise<BudgetFault | null> {
  const error = await work.then(
    () => null,
    (caught: unknown) => caught,
  )
  if (error === null || error instanceof BudgetFault) return error
  throw error
}

test('goal: with random requests at the same time the sums never pass a budget, of key or organization, over restarts', async () => {
  using the = bench()
  const draw = createDraw(11)
  const organization = { nanoUsd: 6_000_000, tokens: null }
  const callers = [
    budgeted('k1', { nanoUsd: null, tokens: 3_000 }, organization),
    budgeted('k2', { nanoUsd: 4_000_000, tokens: null }, organization),
    budgeted('k3', none, organization),
  ]
  let { metering, budgets } = the.open()
  const running: { caller: Caller; most: number; release: Release }[] = []
  let admitted = 0
  let refused = 0
  for (let step = 0; step < 3_000; step += 1) {
    const act = draw(10)
    if (act < 4) {
      const asked = Array.from({ length: 1 + draw(4) }, () => ({
        caller: callers[draw(3)] ?? callerOf(),
        most: draw(200),
      }))
      const begun = asked.map(async ({ caller, most }) => {
        const release = await budgets.reserve(caller, model, { worst: { prompt: most, completion: 0 }, endUser: null })
        if (release !== null) running.push({ caller, most, release })
      })
      for (const fault of await Promise.all(begun.map(refusalOf))) {
        if (fault === null) admitted += 1
        else refused += 1
      }
    } else if (act < 9) {
      const [item] = running.splice(draw(running.length), 1)
      if (item === undefined) continue
      if (draw(5) > 0) the.record(metering, item.caller, draw(item.most + 1))
      item.release()
    } else if (act === 9) {
      metering.flush()
      if (draw(4) === 0) {
        // A restart: what ran has ended with its process, and costs nothing.
        running.length = 0
        ;({ metering, budgets } = the.open())
      }
    }
    const of = (keyPrefix: string) => metering.spent(callerOf({ keyPrefix }), '2026-11')
    expect(of('k1').key.promptTokens).toBeLessThanOrEqual(3_000)
    expect(of('k2').key.costNanoUsd).toBeLessThanOrEqual(4_000_000)
    expect(of('k3').organization.costNanoUsd).toBeLessThanOrEqual(6_000_000)
  }
  // The test has reached what it is about.
  expect([admitted > 100, refused > 100]).toEqual([true, true])
  expect(metering.spent(callerOf(), '2026-11').organization.costNanoUsd).toBeGreaterThan(5_000_000)
})

test('goal: exactly to the budget, not a token more; what is given back is there again', async () => {
  using the = bench()
  const { metering, budgets } = the.open()
  const caller = budgeted('k1', { nanoUsd: null, tokens: 100 })
  const first = await budgets.reserve(caller, model, { worst: { prompt: 60, completion: 0 }, endUser: null })
  const second = await budgets.reserve(caller, model, { worst: { prompt: 0, completion: 40 }, endUser: null })
  const soon = await refusalOf(budgets.reserve(caller, model, { worst: { prompt: 1, completion: 0 }, endUser: null }))
  expect(soon?.mayFitSoon).toBe(true)
  the.record(metering, caller, 30)
  first?.()
  first?.()
  const third = await budgets.reserve(caller, model, { worst: { prompt: 30, completion: 0 }, endUser: null })
  expect(
    await refusalOf(budgets.reserve(caller, model, { worst: { prompt: 1, completion: 0 }, endUser: null })),
  ).not.toBeNull()
  the.record(metering, caller, 30)
  third?.()
  the.record(metering, caller, 40)
  second?.()
  const spent = await refusalOf(budgets.reserve(caller, model, { worst: { prompt: 1, completion: 0 }, endUser: null }))
  expect([spent?.mayFitSoon, spent?.code]).toEqual([false, 'budget_exceeded'])
  expect(spent?.message).toContain('token budget of this key for 2026-11')
  expect(spent?.message).toContain('resets at 2026-12-01T00:00:00.000Z')
  expect(budgets.open()).toEqual([])
})

test('goal: a month begins anew, less what runs over its turn; who has no budget reserves nothing', async () => {
  using the = bench()
  const { metering, budgets } = the.open()
  const caller = budgeted('k1', none, { nanoUsd: 100_000, tokens: null })
  the.record(metering, caller, 40)
  const late = await budgets.reserve(caller, model, { worst: { prompt: 60, completion: 0 }, endUser: null })
  the.setNow(Date.parse('2026-11-30T23:59:58Z'))
  expect(
    await refusalOf(budgets.reserve(caller, model, { worst: { prompt: 61, completion: 0 }, endUser: null })),
  ).not.toBeNull()
  the.setNow(Date.parse('2026-12-01T00:00Z'))
  expect(
    await refusalOf(budgets.reserve(caller, model, { worst: { prompt: 41, completion: 0 }, endUser: null })),
  ).not.toBeNull()
  const next = await budgets.reserve(caller, model, { worst: { prompt: 40, completion: 0 }, endUser: null })
  the.record(metering, caller, 60)
  late?.()
  the.record(metering, caller, 40)
  next?.()
  expect(metering.spent(caller, '2026-12').organization.costNanoUsd).toBe(100_000)
  expect(await budgets.reserve(callerOf(), model, { worst: { prompt: 1e9, completion: 0 }, endUser: null })).toBeNull()
  expect(budgets.open()).toEqual([])
})

// Goal: budgets of a day and a week hold beside those of the month, each until its own end, with what is not in the
// store yet and after a restart; the refusal names the period and when it ends.
test('days and weeks', async () => {
  using the = bench()
  const tokens = (count: number): Budget => ({ nanoUsd: null, tokens: count })
  const short = [
    { kind: 'day', key: tokens(1_000), organization: none },
    { kind: 'week', key: none, organization: tokens(1_500) },
  ] as const
  const caller = callerOf({ keyPrefix: 'k1', budgets: { key: tokens(5_000), organization: none, short } })
  let { metering, budgets } = the.open()
  const use = async (count: number): Promise<BudgetFault | null> => {
    const work = budgets.reserve(caller, model, { worst: { prompt: count, completion: 0 }, endUser: null })
    const fault = await refusalOf(work)
    if (fault !== null) return fault
    the.record(metering, caller, count)
    const release = await work
    release?.()
    return null
  }
  // A Tuesday.
  the.setNow(Date.parse('2026-11-24T12:00Z'))
  expect(await use(600)).toBeNull()
  const today = await use(600)
  expect(today?.message).toContain('The token budget of this key for 2026-11-24 cannot cover')
  expect(today?.message).toContain('It resets at 2026-11-25T00:00:00.000Z.')
  expect(today?.mayFitSoon).toBe(false)
  the.setNow(Date.parse('2026-11-25T00:00Z'))
  expect(await use(800)).toBeNull()
  await metering.stop()
  ;({ metering, budgets } = the.open())
  const week = await use(150)
  expect(week?.message).toContain('The token budget of the organization for the week of 2026-11-23 cannot cover')
  expect(week?.message).toContain('It resets at 2026-11-30T00:00:00.000Z.')
  expect(await use(100)).toBeNull()
  // Requests that run count, too, whichever the period: 1,000 a day for both together.
  the.setNow(Date.parse('2026-11-30T00:00Z'))
  const running = await budgets.reserve(caller, model, { worst: { prompt: 700, completion: 0 }, endUser: null })
  const beside = await refusalOf(
    budgets.reserve(caller, model, { worst: { prompt: 400, completion: 0 }, endUser: null }),
  )
  expect(beside?.mayFitSoon).toBe(true)
  running?.()
  expect(await use(400)).toBeNull()
})

// Goal: the refusal promises room soon only if all budgets will have it.
test('of two budgets without room, the refusal is about the one that stays spent', async () => {
  using the = bench()
  const { metering, budgets } = the.open()
  const tokens = (count: number): Budget => ({ nanoUsd: null, tokens: count })
  const ask = (caller: Caller) =>
    refusalOf(budgets.reserve(caller, model, { worst: { prompt: 50, completion: 0 }, endUser: null }))
  the.record(metering, callerOf({ keyPrefix: 'other' }), 60)
  const organizations = budgeted('k1', tokens(100), tokens(100))
  const days = callerOf({
    keyPrefix: 'k1',
    budgets: { key: tokens(100), organization: none, short: [{ kind: 'day', key: none, organization: tokens(100) }] },
  })
  const running = await budgets.reserve(budgeted('k1', tokens(100)), model, {
    worst: { prompt: 60, completion: 0 },
    endUser: null,
  })
  const refused = [await ask(organizations), await ask(days)]
  expect(refused.map(fault => fault?.mayFitSoon)).toEqual([false, false])
  expect(refused[0]?.message).toContain('budget of the organization for 2026-11 ')
  expect(refused[1]?.message).toContain('budget of the organization for 2026-11-22 ')
  const key = await ask(budgeted('k1', tokens(100)))
  expect(key?.mayFitSoon).toBe(true)
  running?.()
})
