// Sums of days and weeks that are kept in memory, against the database.

import { expect, test } from 'bun:test'
import { createDraw } from '../../../../scripts/rigs/draw.ts'
import { prepareRaw } from '../../../../src/store/db.ts'
import { prepareUsageAppend, purgeUsage } from '../../../../src/store/directory/usage/usage.query.ts'
import {
  type MonthSum,
  prepareDaysSum,
  prepareKeySums,
  prepareMonthSum,
} from '../../../../src/store/directory/usage/usage-month.query.ts'
import { openLedger } from '../../../rigs/gateway/keys.ts'
import { usageRow, usageSum } from '../../../rigs/gateway/usage-rows.ts'

type Store = ReturnType<typeof openLedger>['store']

const noon = (day: string) => Date.parse(`${day}T12:00Z`)

/** As a copy in the fleet writes them: sums of a host only grow. */
function addOfOther(store: Store, day: string, requests: number): void {
  const of = (table: string, where: string) =>
    prepareRaw<{ sum: number }>(
      store.db,
      `SELECT coalesce(sum(requests), 0) AS sum FROM ${table} WHERE organization_id = 'o1' AND host_id = 'other' AND ${where}`,
    ).get()?.sum ?? 0
  const amounts = (sum: number) => `${sum}, ${10 * sum}, ${5 * sum}, ${7 * sum}`
  addDayOfOther(store, day, amounts(of('usage_days', `day = '${day}'`) + requests))
  addMonthOfOther(store, day, amounts(of('usage_months', `month = '${day.slice(0, 7)}'`) + requests))
}

function addMonthOfOther(store: Store, day: string, amounts: string): void {
  store.db.run(`INSERT OR REPLACE INTO usage_months VALUES ('o1', '${day.slice(0, 7)}', '', 'other', ${amounts}, 0)`)
}

function addDayOfOther(store: Store, day: string, amounts: string): void {
  store.db.run(`INSERT OR REPLACE INTO usage_days VALUES ('o1', 'k1', '${day}', 'tiny', 'other', ${amounts}, 0, 0)`)
}

// Goal: whatever is written or purged, the sum in memory equals a new one of all rows.
test('random rows of this host and of others, and purges', () => {
  using ledger = openLedger()
  const { db } = ledger.store
  const append = prepareUsageAppend(db)
  const cached = prepareMonthSum(db)
  const keySums = prepareKeySums(db)
  const draw = createDraw(7)
  const days = ['2026-11-29', '2026-11-30', '2026-12-01', '2026-12-06', '2026-12-07']
  const periods = [...days, '2026-11-23/P7D', '2026-11-30/P7D', '2026-12-07/P7D']
  const pick = <Item>(items: readonly Item[]): Item => items[draw(items.length)] as Item
  for (let step = 0; step < 400; step += 1) {
    const act = draw(12)
    if (act === 0) addOfOther(ledger.store, pick(days), 1 + draw(50))
    else if (act === 1) purgeUsage(db, { beforeMs: Number.MAX_SAFE_INTEGER, limit: 10_000 })
    else {
      const row = (at: number) =>
        usageRow({
          id: `${step} ${at}`,
          atMs: noon(pick(days)),
          organizationId: pick(['o1', 'o2']),
          keyPrefix: pick(['k1', 'k2']),
        })
      append(Array.from({ length: 1 + draw(4) }, (_, at) => row(at)))
    }
    for (const organizationId of ['o1', 'o2']) {
      for (const month of draw(2) === 0 ? periods : [pick(periods)]) {
        const fresh = prepareDaysSum(db)({
          organizationId,
          from: month.slice(0, 10),
          to: month.endsWith('P7D')
            ? new Date(noon(month.slice(0, 10)) + 6 * 86_400_000).toISOString().slice(0, 10)
            : month,
        })
        expect(cached({ organizationId, month, keyPrefix: '' })).toEqual(fresh)
        const sums = keySums({ organizationId, month })
        expect(sums.get('')).toEqual(fresh)
        const none: MonthSum = usageSum(0)
        for (const keyPrefix of ['k1', 'k2']) {
          expect(cached({ organizationId, month, keyPrefix })).toEqual(sums.get(keyPrefix) ?? none)
        }
      }
    }
  }
})

// Goal: a sum is right soon, whichever table of another host is copied first.
test('a copy that brings the days of another host after its months', () => {
  using ledger = openLedger()
  let nowMs = 0
  const sum = prepareDaysSum(ledger.store.db, () => nowMs)
  const scope = { organizationId: 'o1', from: '2026-11-30', to: '2026-12-06' }
  addMonthOfOther(ledger.store, '2026-12-01', '3, 30, 15, 21')
  expect(sum(scope)).toEqual(usageSum(0))
  addDayOfOther(ledger.store, '2026-12-01', '3, 30, 15, 21')
  nowMs = 2_000
  expect(sum(scope)).toEqual(usageSum(3))
})

// Goal: amounts at the bound make no error.
test('no amount overflows a sum', () => {
  using ledger = openLedger()
  const append = prepareUsageAppend(ledger.store.db)
  const sum = prepareDaysSum(ledger.store.db)
  const scope = { organizationId: 'o1', from: '2026-11-22', to: '2026-11-22' }
  expect(sum(scope)).toEqual(usageSum(0))
  const most = Number.MAX_SAFE_INTEGER
  const amounts = { promptTokens: most, completionTokens: most, costNanoUsd: most }
  append(Array.from({ length: 2_000 }, (_, at) => usageRow({ id: `${at}`, ...amounts })))
  expect(sum(scope)).toEqual({ requests: 2_000, ...amounts })
})

// Goal: a request of a key with a budget does not sum its organization's days.
test('reading costs the same with a key as with 1,000 keys', () => {
  using ledger = openLedger()
  const append = prepareUsageAppend(ledger.store.db)
  const monday = noon('2026-11-23')
  for (let key = 0; key < 1_000; key += 1) {
    const row = (at: number) => ({
      ...{ id: `${key} ${at}`, keyPrefix: `k${key}`, model: `m${at % 3}` },
      atMs: monday + Math.floor(at / 3) * 86_400_000,
    })
    append(Array.from({ length: 21 }, (_, at) => usageRow(row(at))))
  }
  const sum = prepareMonthSum(ledger.store.db)
  const read = (keyPrefix: string) => sum({ organizationId: 'o1', keyPrefix, month: '2026-11-23/P7D' })
  expect([read('').requests, read('k500').requests]).toEqual([21_000, 21])
  const sinceMs = performance.now()
  for (let at = 0; at < 200; at += 1) {
    append([usageRow({ id: `more ${at}`, keyPrefix: 'k500', atMs: monday })])
    expect([read('').requests, read('k500').requests]).toEqual([21_001 + at, 22 + at])
  }
  // 200 sums of 21,000 rows take seconds.
  expect(performance.now() - sinceMs).toBeLessThan(1_000)
}, 30_000)
