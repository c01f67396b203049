// Goal: the sums of calendar months equal the ledger's rows, for keys and organizations, after any append, repetition
// or purge.

import { expect, test } from 'bun:test'
import { monthEndMs, monthOf, periodEndMs, shortPeriodOf } from '../../../../src/store/directory/usage/periods.ts'
import { prepareUsageAppend } from '../../../../src/store/directory/usage/usage.query.ts'
import { prepareMonthSum, purgeUsageMonths } from '../../../../src/store/directory/usage/usage-month.query.ts'
import { openLedger } from '../../../rigs/gateway/keys.ts'
import { usageRow, usageSum } from '../../../rigs/gateway/usage-rows.ts'

test('goal: each row counts once, by key and by organization, in the month of UTC that it is of', () => {
  using ledger = openLedger()
  const append = prepareUsageAppend(ledger.store.db)
  const monthSum = prepareMonthSum(ledger.store.db)
  const rows = [
    usageRow({ id: '1' }),
    usageRow({ id: '2', keyPrefix: 'k2' }),
    usageRow({ id: '3', atMs: Date.parse('2026-11-30T23:59:59.999Z') }),
    usageRow({ id: '4', atMs: Date.parse('2026-12-01T00:00Z') }),
    usageRow({ id: '5', organizationId: 'o2' }),
  ]
  expect(append(rows)).toBe(5)
  expect(append(rows)).toBe(0)
  expect(append(Array.from({ length: 30 }, (_, index) => usageRow({ id: `m${index}`, keyPrefix: 'k3' })))).toBe(30)
  const of = (organizationId: string, keyPrefix: string, month: string) =>
    monthSum({ organizationId, keyPrefix, month })
  expect(of('o1', '', '2026-11')).toEqual(usageSum(33))
  expect(of('o1', 'k1', '2026-11')).toEqual(usageSum(2))
  expect(of('o1', 'k3', '2026-11')).toEqual(usageSum(30))
  expect(of('o1', 'k1', '2026-12')).toEqual(usageSum(1))
  expect(of('o2', '', '2026-11')).toEqual(usageSum(1))
  expect(of('o1', 'k1', '2026-10')).toEqual(usageSum(0))
})

test('goal: no amount and no time makes a row that cannot be kept', () => {
  using ledger = openLedger()
  const most = Number.MAX_SAFE_INTEGER
  const amounts = { promptTokens: most, completionTokens: most, costNanoUsd: most }
  const append = prepareUsageAppend(ledger.store.db)
  expect(append([1, 2, 3].map(id => usageRow({ id: `${id}`, ...amounts })))).toBe(3)
  expect(append([usageRow({ id: '4', atMs: most })])).toBe(1)
  const monthSum = prepareMonthSum(ledger.store.db)
  expect(monthSum({ organizationId: 'o1', keyPrefix: '', month: '2026-11' })).toEqual({ requests: 3, ...amounts })
  expect(monthSum({ organizationId: 'o1', keyPrefix: '', month: '9999-12' })).toEqual(usageSum(1))
})

test('goal: months end where the next begins, and old ones are purged within bounds', () => {
  expect(monthOf(Date.parse('2026-12-31T23:59:59.999Z'))).toBe('2026-12')
  expect(monthEndMs('2026-12')).toBe(Date.parse('2027-01-01T00:00Z'))
  expect(monthEndMs('2027-02')).toBe(Date.parse('2027-03-01T00:00Z'))
  using ledger = openLedger()
  const months = ['2026-08', '2026-09', '2026-10', '2026-11']
  prepareUsageAppend(ledger.store.db)(
    months.map(month => usageRow({ id: month, atMs: Date.parse(`${month}-15T00:00Z`) })),
  )
  const purge = (limit: number) => purgeUsageMonths(ledger.store.db, { before: '2026-10', limit })
  expect([purge(3), purge(3), purge(3)]).toEqual([3, 1, 0])
  const monthSum = prepareMonthSum(ledger.store.db)
  expect(months.map(month => monthSum({ organizationId: 'o1', keyPrefix: '', month }).requests)).toEqual([0, 0, 1, 1])
})

test('goal: days and weeks of UTC are summed, too, for keys and organizations; a week begins on Monday', () => {
  const at = (text: string) => Date.parse(text)
  expect(shortPeriodOf('day', at('2026-11-29T23:59:59.999Z'))).toBe('2026-11-29')
  expect(shortPeriodOf('week', at('2026-11-29T23:59:59.999Z'))).toBe('2026-11-23/P7D')
  expect(shortPeriodOf('week', at('2026-11-30T00:00Z'))).toBe('2026-11-30/P7D')
  expect(shortPeriodOf('week', at('1970-01-01T00:00Z'))).toBe('1969-12-29/P7D')
  expect(periodEndMs('2026-12-31')).toBe(at('2027-01-01T00:00Z'))
  expect(periodEndMs('2026-11-30/P7D')).toBe(at('2026-12-07T00:00Z'))
  expect(periodEndMs('2026-12')).toBe(at('2027-01-01T00:00Z'))
  using ledger = openLedger()
  const days = ['2026-11-22', '2026-11-23', '2026-11-29', '2026-11-30']
  prepareUsageAppend(ledger.store.db)([
    ...days.map(day => usageRow({ id: day, atMs: at(`${day}T12:00Z`) })),
    usageRow({ id: 'k2', keyPrefix: 'k2', model: 'other', atMs: at('2026-11-25T12:00Z') }),
    usageRow({ id: 'o2', organizationId: 'o2', atMs: at('2026-11-25T12:00Z') }),
  ])
  const monthSum = prepareMonthSum(ledger.store.db)
  const of = (keyPrefix: string, month: string) => monthSum({ organizationId: 'o1', keyPrefix, month })
  expect(of('k1', '2026-11-23/P7D')).toEqual(usageSum(2))
  expect(of('', '2026-11-23/P7D')).toEqual(usageSum(3))
  expect(of('k1', '2026-11-23')).toEqual(usageSum(1))
  expect(of('k2', '2026-11-25')).toEqual(usageSum(1))
  expect(of('k1', '2026-11-25')).toEqual(usageSum(0))
})
