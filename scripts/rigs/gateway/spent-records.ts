// The records of a gateway under test as its books, without a store. Each request costs 7 nano-dollars. State in
// memory.

import { type DatedRow, readDays, withUnbooked } from '../../../src/inference/metering/day-sums.ts'
import { MonthSums } from '../../../src/inference/metering/journal/month-sum-table.ts'
import { scopesOf } from '../../../src/inference/metering/month-sums.ts'
import type { SpentSource, UsageRecord } from '../../../src/inference/metering/types.ts'

export class SpentRecords implements SpentSource {
  readonly #rows: DatedRow[] = []
  readonly #months = new MonthSums()

  add({ caller, atMs, model, tokens }: UsageRecord): void {
    const { organizationId, keyPrefix } = caller
    const amounts = { promptTokens: tokens.prompt, completionTokens: tokens.completion, costNanoUsd: 7 }
    const row = { organizationId, keyPrefix, atMs, model, ...amounts }
    this.#rows.push(row)
    this.#months.add(row)
  }

  readonly spent: SpentSource['spent'] = (caller, month) => {
    const { key, organization } = scopesOf(caller, month)
    return { key: this.#months.of(key), organization: this.#months.of(organization) }
  }

  readonly shares = null

  readonly load: SpentSource['load'] = async () => {}

  readonly days: SpentSource['days'] = scope =>
    readDays(async () => withUnbooked({ rows: [], isLast: true }, { scope, after: null }, this.#rows))
}
