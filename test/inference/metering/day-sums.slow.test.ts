// Goal: pages of the books plus the rows that they lack are exact, wherever a page ends and whatever is booked in
// between.

import { expect, test } from 'bun:test'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { allOf, failure } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import {
  type DatedRow,
  dayOfRow,
  daysReadMax,
  readDays,
  withUnbooked,
} from '../../../src/inference/metering/day-sums.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { createCost } from '../../../src/inference/metering/price.ts'
import { prepareUsageAppend } from '../../../src/store/directory/usage/usage.query.ts'
import { type DaySum, prepareDaysPage } from '../../../src/store/directory/usage/usage-day.query.ts'
import { callerOf, openLedger } from '../../rigs/gateway/keys.ts'
import { usageRow } from '../../rigs/gateway/usage-rows.ts'

const scope = { organizationId: 'o1', keyPrefix: 'k1', from: '2026-11-02', to: '2026-11-04' }
const models = ['a', 'a\0', 'b', '\u{1f600}', '\uff5e', 'é']

function truthOf(rows: readonly DatedRow[]): Record<string, number> {
  const own = rows.filter(row => row.organizationId === 'o1' && row.keyPrefix === 'k1')
  const places = own.map(row => JSON.stringify([dayOfRow(row), row.model]))
  const inScope = places.filter(place => place.slice(2, 12) >= scope.from && place.slice(2, 12) <= scope.to)
  return Object.fromEntries([...Map.groupBy(inScope, place => place)].map(([place, all]) => [place, all.length]))
}

const counted = (sums: readonly DaySum[]) =>
  Object.fromEntries(sums.map(({ day, model, requests }) => [JSON.stringify([day, model]), requests]))

test('goal: random rows, booked or not, in pages of random sizes, while more are booked', async () => {
  for (let seed = 1; seed <= 25; seed += 1) {
    const draw = createDraw(seed)
    using ledger = openLedger()
    const append = prepareUsageAppend(ledger.store.db)
    const page = prepareDaysPage(ledger.store.db)
    const rows = Array.from({ length: 80 }, (_, index) =>
      usageRow({
        id: `${index}`,
        keyPrefix: `k${1 + draw(4 / 3)}`,
        model: models[draw(models.length)] ?? '',
        atMs: Date.parse(`2026-11-0${1 + draw(5)}T12:00Z`),
      }),
    )
    let booked = draw(rows.length)
    append(rows.slice(0, booked))
    const sums = await allOf(
      readDays(async after => {
        // A page and the rows that it lacks are as of the same moment.
        const read = withUnbooked(page(scope, after, 1 + draw(4)), { scope, after }, rows.slice(booked))
        const more = draw(8)
        append(rows.slice(booked, booked + more))
        booked += more
        return read
      }),
    )
    expect([seed, counted(sums)]).toEqual([seed, truthOf(rows)])
    expect(sums.every(sum => sum.promptTokens === 10 * sum.requests && sum.costNanoUsd === 7 * sum.requests)).toBe(true)
  }
})

test('goal: what waits to be written is in the sums at once, and counts once when it is', async () => {
  using ledger = openLedger()
  const { store, log } = ledger
  const metering = new Metering({ store: { ...store }, clock: systemClock, log, cost: createCost([]) })
  const caller = callerOf({ organizationId: 'o1', keyPrefix: 'k1' })
  const record = (id: string) =>
    metering.record({
      id,
      atMs: Date.parse('2026-11-03T12:00Z'),
      caller,
      model: 'm',
      upstream: 'u',
      tokens: { prompt: 2, completion: 3 },
      tokensSource: 'reported',
      outcome: 'completed',
    })
  const days = async () => (await allOf(metering.days(scope))).map(({ day, model, requests }) => [day, model, requests])
  record('1')
  expect(await days()).toEqual([['2026-11-03', 'm', 1]])
  metering.flush()
  record('2')
  expect(await days()).toEqual([['2026-11-03', 'm', 2]])
  metering.stop()
  expect(await days()).toEqual([['2026-11-03', 'm', 2]])
})

test('goal: however many read at a time, the event loop is held for a page, and another organization waits for one', async () => {
  using ledger = openLedger()
  const { store, log } = ledger
  const sleeps: (() => void)[] = []
  const clock = { sleep: () => new Promise<void>(resolve => void sleeps.push(resolve)) }
  const metering = new Metering({ store: { ...store }, clock, log, cost: createCost([]) })
  const much = Array.from({ length: 70 }, () => allOf(metering.days(scope)).catch(error => error.code))
  const other = allOf(metering.days({ ...scope, organizationId: 'o2' })).then(() => void order.push('other'))
  const order: string[] = []
  for (const reading of much) void reading.then(outcome => order.push(outcome.length === 0 ? 'much' : outcome))
  for (let turn = 0; turn < 65; turn += 1) {
    await Bun.sleep(0)
    expect(sleeps).toHaveLength(turn + 1)
    sleeps[turn]?.()
  }
  await Promise.all([...much, other])
  // Six are more than may wait.
  expect(order.slice(0, 6)).toEqual(Array(6).fill('metering_unavailable'))
  expect(order.slice(6, 8)).toEqual(['much', 'other'])
  expect(order).toHaveLength(71)
})

test('goal: books that go on for ever, or stop before their end, end in a refusal', async () => {
  let pages = 0
  const sum = { day: '2026-11-03', model: 'm', requests: 1, promptTokens: 1, completionTokens: 1, costNanoUsd: 1 }
  const endless = readDays(async () => {
    pages += 1
    return { rows: Array(100).fill(sum), isLast: false }
  })
  expect([(await failure(allOf(endless))).code, pages]).toEqual(['invalid_request', daysReadMax / 100 + 1])
  const silent = readDays(async () => ({ rows: [], isLast: false }))
  expect((await failure(allOf(silent))).code).toBe('metering_unavailable')
})
