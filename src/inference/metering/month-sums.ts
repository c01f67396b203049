// Sums of usage by calendar month (UTC). No I/O.

import { SHORT_PERIODS } from '../../contract/key-rules.ts'
import { monthOf, shortPeriodOf } from '../../store/directory/usage/periods.ts'
import type { MonthScope, MonthSum } from '../../store/directory/usage/usage-month.query.ts'
import { unknownUse } from './faults.ts'
import type { MonthSpent, Spender, SpentSource } from './types.ts'

/** The fields of a usage row that sums need. */
export type CountedRow = Omit<MonthSum, 'requests'> & {
  readonly atMs: number
  readonly organizationId: string
  readonly keyPrefix: string
}

/** Returns the two sums that a row, or a key's request, is part of. */
export function scopesOf(
  { organizationId, keyPrefix }: Spender,
  month: string,
): { readonly key: MonthScope; readonly organization: MonthScope } {
  return { key: { organizationId, keyPrefix, month }, organization: { organizationId, keyPrefix: '', month } }
}

/** Returns a unique name of the scope. Ids contain no line break. */
export function scopeName({ organizationId, keyPrefix, month }: MonthScope): string {
  return `${month}\n${organizationId}\n${keyPrefix}`
}

export function addSums(sum: MonthSum, other: MonthSum): MonthSum {
  return {
    requests: sum.requests + other.requests,
    promptTokens: sum.promptTokens + other.promptTokens,
    completionTokens: sum.completionTokens + other.completionTokens,
    costNanoUsd: sum.costNanoUsd + other.costNanoUsd,
  }
}

export function sumOfRow({ promptTokens, completionTokens, costNanoUsd }: CountedRow): MonthSum {
  return { requests: 1, promptTokens, completionTokens, costNanoUsd }
}

/** Returns the month of a row; as in the store, the last month for a time outside the calendar. */
export function monthOfRow({ atMs }: Pick<CountedRow, 'atMs'>): string {
  return atMs >= 0 && atMs < lastMonthMs ? monthOf(atMs) : '9999-12'
}

const lastMonthMs = Date.UTC(9999, 11)

/** Returns the month, the day and the week of a row. */
export function periodsOfRow(row: Pick<CountedRow, 'atMs'>): readonly string[] {
  const atMs = row.atMs >= 0 && row.atMs < lastMonthMs ? row.atMs : lastMonthMs
  return [monthOfRow(row), ...SHORT_PERIODS.map(kind => shortPeriodOf(kind, atMs))]
}

const attemptsMax = 3

/** Usage in a period as in `MonthScope`. */
export type PeriodSpent = { readonly period: string; readonly spent: MonthSpent }

/**
 * Loads the sums, then calls `use` in the same turn of the event loop in which they are read. Throws Fault
 * metering_unavailable.
 */
export async function withSpent<Result>(
  source: Pick<SpentSource, 'spent' | 'load'>,
  { spender, periods }: { readonly spender: Spender; readonly periods: () => readonly string[] },
  use: (spent: readonly PeriodSpent[]) => Result,
): Promise<Result> {
  for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
    const known: PeriodSpent[] = []
    const wanted = periods()
    for (const period of wanted) {
      const spent = source.spent(spender, period)
      if (spent === null) await source.load(spender, period)
      else known.push({ period, spent })
    }
    if (known.length === wanted.length) return use(known)
  }
  throw unknownUse()
}
