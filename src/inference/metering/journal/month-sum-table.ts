// A table of usage sums by calendar month (UTC), in memory, for rows that are not in the store yet. No I/O.

import { noUsage } from '../../../store/directory/usage/periods.ts'
import type { MonthScope, MonthSum } from '../../../store/directory/usage/usage-month.query.ts'
import { addSums, type CountedRow, monthOfRow, periodsOfRow, scopeName, scopesOf, sumOfRow } from '../month-sums.ts'

export class MonthSums {
  readonly #sums = new Map<string, MonthSum>()
  /** Whether days and weeks are summed too, which takes three times as long. */
  readonly hasShort: boolean

  constructor(hasShort = false) {
    this.hasShort = hasShort
  }

  add(row: CountedRow): void {
    for (const scope of this.#scopesOf(row)) {
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
    for (const scope of this.#scopesOf(row)) {
      const name = scopeName(scope)
      const left = addSums(this.#sums.get(name) ?? noUsage, less)
      if (left.requests === 0) this.#sums.delete(name)
      else this.#sums.set(name, left)
    }
  }

  of(scope: MonthScope): MonthSum {
    return this.#sums.get(scopeName(scope)) ?? noUsage
  }

  #scopesOf(row: CountedRow): MonthScope[] {
    const periods = this.hasShort ? periodsOfRow(row) : [monthOfRow(row)]
    return periods.flatMap(period => Object.values(scopesOf(row, period)))
  }
}
