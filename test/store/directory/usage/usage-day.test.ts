// Goal: the sums of days equal the ledger's rows, for each key and model; pages miss none and repeat none: real SQLite.

import { Database } from 'bun:sqlite'
import { expect, test } from 'bun:test'
import { join } from 'node:path'
import { prepareUsageAppend } from '../../../../src/store/directory/usage/usage.query.ts'
import {
  type DayPlace,
  type DaySum,
  prepareDaysPage,
  purgeUsageDays,
  type ReadDaysPage,
} from '../../../../src/store/directory/usage/usage-day.query.ts'
import { openLedger } from '../../../rigs/gateway/keys.ts'
import { usageRow, usageSum } from '../../../rigs/gateway/usage-rows.ts'

const at = (text: string) => Date.parse(`${text}Z`)
const all = { organizationId: 'o1', keyPrefix: 'k1', from: '0000-01-01', to: '9999-12-31' }

function allPages(page: ReadDaysPage, scope = all, limit = 100): DaySum[] {
  const rows: DaySum[] = []
  for (let after: DayPlace | null = null; ; after = rows.at(-1) ?? null) {
    const next = page(scope, after, limit)
    rows.push(...next.rows)
    if (next.isLast) return rows
    expect(next.rows).toHaveLength(limit)
  }
}

test('goal: each row counts once, for its key and model, on the day of UTC that it is of', () => {
  using ledger = openLedger()
  const append = prepareUsageAppend(ledger.store.db)
  const page = prepareDaysPage(ledger.store.db)
  const rows = [
    usageRow({ id: '1', atMs: at('2026-11-22T00:00:00.000') }),
    usageRow({ id: '2', atMs: at('2026-11-22T23:59:59.999') }),
    usageRow({ id: '3', atMs: at('2026-11-23T00:00') }),
    usageRow({ id: '4', model: 'big' }),
    usageRow({ id: '5', keyPrefix: 'k2' }),
    usageRow({ id: '6', organizationId: 'o2' }),
  ]
  expect([append(rows), append(rows)]).toEqual([6, 0])
  expect(append(Array.from({ length: 30 }, (_, index) => usageRow({ id: `m${index}`, keyPrefix: 'k2' })))).toBe(30)
  const days: DaySum[] = [
    { day: '2026-11-22', model: 'big', ...usageSum(1) },
    { day: '2026-11-22', model: 'tiny', ...usageSum(2) },
    { day: '2026-11-23', model: 'tiny', ...usageSum(1) },
  ]
  expect(allPages(page)).toEqual(days)
  expect(allPages(page, { ...all, from: '2026-11-23' })).toEqual(days.slice(2))
  expect(allPages(page, { ...all, to: '2026-11-22' })).toEqual(days.slice(0, 2))
  expect(allPages(page, { ...all, keyPrefix: 'k2' })).toEqual([{ day: '2026-11-22', model: 'tiny', ...usageSum(31) }])
  expect(allPages(page, { ...all, keyPrefix: 'k' })).toEqual([])
})

test('goal: pages of every size have the same rows, whatever the models are called', () => {
  using ledger = openLedger()
  const models = ['', 'a', 'a\0b', 'B', 'é', '\u{1f600}', '\uff5e', 'z'.repeat(256)]
  const days = ['2026-11-21', '2026-11-22']
  const rows = days.flatMap(day =>
    models.map((model, index) => usageRow({ id: `${day}${index}`, atMs: at(`${day}T12:00`), model })),
  )
  prepareUsageAppend(ledger.store.db)(rows)
  const page = prepareDaysPage(ledger.store.db)
  const whole = allPages(page)
  const byBytes = models.toSorted((model, other) => Buffer.compare(Buffer.from(model), Buffer.from(other)))
  expect(whole.map(({ day, model }) => [day, model])).toEqual(days.flatMap(day => byBytes.map(model => [day, model])))
  const justThose = { ...all, from: days[0] ?? '', to: days[1] ?? '' }
  for (let limit = 1; limit <= whole.length; limit += 1) expect(allPages(page, justThose, limit)).toEqual(whole)
})

test('goal: no amount and no time makes a row that cannot be kept', () => {
  using ledger = openLedger()
  const most = Number.MAX_SAFE_INTEGER
  const amounts = { promptTokens: most, completionTokens: most, costNanoUsd: most }
  const append = prepareUsageAppend(ledger.store.db)
  expect(append([1, 2].map(id => usageRow({ id: `${id}`, ...amounts })))).toBe(2)
  expect(append([usageRow({ id: '3', atMs: most })])).toBe(1)
  expect(allPages(prepareDaysPage(ledger.store.db))).toEqual([
    { day: '2026-11-22', model: 'tiny', requests: 2, ...amounts },
    { day: '9999-12-31', model: 'tiny', ...usageSum(1) },
  ])
})

test('goal: old days are purged within bounds, and without reading the others', () => {
  using ledger = openLedger()
  const days = ['2026-09-30', '2026-10-01', '2026-10-02', '2026-10-03']
  prepareUsageAppend(ledger.store.db)(days.map(day => usageRow({ id: day, atMs: at(`${day}T12:00`) })))
  const purge = (limit: number) => purgeUsageDays(ledger.store.db, { before: '2026-10-03', limit })
  expect([purge(2), purge(2), purge(2)]).toEqual([2, 1, 0])
  expect(allPages(prepareDaysPage(ledger.store.db)).map(sum => sum.day)).toEqual(['2026-10-03'])
  using db = new Database(join(ledger.dir, 'strongroom.db'), { readonly: true })
  const plan = db.query<{ detail: string }, []>("EXPLAIN QUERY PLAN SELECT model FROM usage_days WHERE day < 'x'").all()
  expect(plan.map(step => step.detail).join()).toContain('INDEX usage_days_day')
})
