// Periods of usage: calendar months, weeks and days (UTC), as `MonthScope` has them. Pure.

import { iso } from '../../../base/clock.ts'
import { dayMs } from '../../../base/time.ts'
import type { ShortPeriod } from '../../../contract/key-rules.ts'
import type { UsageMonth } from './usage-month.table.ts'

export const noUsage: Pick<UsageMonth, 'requests' | 'promptTokens' | 'completionTokens' | 'costNanoUsd'> = {
  requests: 0,
  promptTokens: 0,
  completionTokens: 0,
  costNanoUsd: 0,
}

/** The day (UTC) of a time, as 2026-11-30. */
export function dayOf(atMs: number): string {
  return iso(atMs).slice(0, 10)
}

/** The calendar month (UTC) of a time, as 2026-11. */
export function monthOf(atMs: number): string {
  // Written so that NaN is never taken for a time of that month.
  if (!(atMs >= latest.startMs && atMs < latest.endMs)) {
    const month = new Date(atMs).toISOString().slice(0, 7)
    latest = { month, startMs: Date.parse(`${month}-01T00:00:00.000Z`), endMs: monthEndMs(month) }
  }
  return latest.month
}

/** Cache of the last month: each request needs it several times. */
let latest = { month: '', startMs: 0, endMs: 0 }

/** The day or the week (UTC) of a time, as in `MonthScope`. */
export function shortPeriodOf(kind: ShortPeriod, atMs: number): string {
  const day = Math.floor(atMs / dayMs)
  // The first day of 1970 was a Thursday.
  const monday = day - ((((day + 3) % 7) + 7) % 7)
  const first = iso((kind === 'day' ? day : monday) * dayMs).slice(0, 10)
  return kind === 'day' ? first : `${first}${ofSevenDays}`
}

const ofSevenDays = '/P7D'

/** First day of a day or a week, and how many days it has; null for a month. */
export function daysOf(period: string): { readonly from: string; readonly count: number } | null {
  if (period.length === '2026-11'.length) return null
  return { from: period.slice(0, 10), count: period.endsWith(ofSevenDays) ? 7 : 1 }
}

/** For people. */
export function periodText(period: string): string {
  const days = daysOf(period)
  return days?.count === 7 ? `the week of ${days.from}` : period
}

export function isMonth(period: string): boolean {
  return daysOf(period) === null
}

/** End of a period, as `MonthScope` has them. */
export function periodEndMs(period: string): number {
  const days = daysOf(period)
  return days === null ? monthEndMs(period) : Date.parse(`${days.from}T00:00:00.000Z`) + days.count * dayMs
}

/** Start of the next month. */
export function monthEndMs(month: string): number {
  const [year = 0, number = 0] = month.split('-').map(Number)
  return Date.UTC(year, number)
}
