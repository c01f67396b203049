// Sums of usage by calendar month (UTC), in memory: of rows that are not in the store yet. No I/O.

import { type MonthScope, type MonthSum, monthOf, noUsage } from '../../store/directory/usage/usage-month.query.ts'
import { unknownUse } from './faults.ts'
import type { MonthSpent, Spender, SpentSource } from './types.ts'

/** A row of usage as far as sums go. */
export type CountedRow = Omit<MonthSum, 'requests'> & {
  readonly atMs: number
  readonly organizationId: string
  readonly keyPrefix: string
}

/** The two sums that a row, or a key's request, is part of. */
export function scopesOf(
  { organizationId, keyPrefix }: Spender,
  month: string,
): { readonly key: MonthScope; readonly organization: MonthScope } {
  return { key: { organizationId, keyPrefix, month }, organization: { organizationId, keyPrefix: '', month } }
}

/** One text for each. Neither id has a line break. */
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

/** The month of a row; the last month for a time outside the calendar, as in the store. */
export function monthOfRow({ atMs }: Pick<CountedRow, 'atMs'>): string {
  return atMs >= 0 && atMs < lastMonthMs ? monthOf(atMs) : '9999-12'
}

const lastMonthMs = Date.UTC(9999, 11)

export class MonthSums {
  readonly #sums = new Map<string, MonthSum>()

  add(row: CountedRow): void {
    for (const scope of Object.values(scopesOf(row, monthOfRow(row)))) {
      const name = scopeName(scope)
      this.#sums.set(name, addSums(this.#sums.get(name) ?? noUsage, sumOfRow(row)))
    }
  }

  /** Subtracts an added row. */
  remove(row: CountedRow): void {
    const { requests, promptTokens, completionTokens, costNanoUsd } = sumOfRow(row)
    const less = {
      requests: -requests,
      promptTokens: -promptTokens,
      completionTokens: -completionTokens,
      costNanoUsd: -costNanoUsd,
    }
    for (const scope of Object.values(scopesOf(row, monthOfRow(row)))) {
      const name = scopeName(scope)
      const left = addSums(this.#sums.get(name) ?? noUsage, less)
      if (left.requests === 0) this.#sums.delete(name)
      else this.#sums.set(name, left)
    }
  }

  of(scope: MonthScope): MonthSum {
    return this.#sums.get(scopeName(scope)) ?? noUsage
  }
}

const attemptsMax = 3

/**
 * Calls `use` in the turn of the event loop in which the sums are read; loads them first. Fault metering_unavailable.
 */
export async function withSpent<Result>(
  source: Pick<SpentSource, 'spent' | 'load'>,
  { spender, month }: { readonly spender: Spender; readonly month: () => string },
  use: (spent: MonthSpent, month: string) => Result,
): Promise<Result> {
  for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
    const now = month()
    const spent = source.spent(spender, now)
    if (spent !== null) return use(spent, now)
    await source.load(spender, now)
  }
  throw unknownUse()
}
