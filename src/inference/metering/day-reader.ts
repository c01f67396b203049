// Usage of a key by day and model in a gateway VM: pages of the host's ledger, fetched on demand, plus rows of this
// VM that they lack. Effects: calls the host.
//
// One page is requested at a time, organizations in turn, because the host has other requests to answer.

import type { Clock } from '../../base/clock.ts'
import { checked } from '../../contract/check.ts'
import { DaySums } from '../../contract/vm/enclave.ts'
import type { UsageRow } from '../../contract/vm/enclave-responses.ts'
import type { DayPlace, DayScope, DaySum, DaysPage } from '../../store/directory/usage/usage-day.query.ts'
import { type DatedRow, DayReadings, withUnbooked } from './day-sums.ts'
import { tooMuchAsked, unknownUse } from './faults.ts'
import type { RecentRows } from './recent-rows.ts'
import type { HostQueries } from './types.ts'

export type DayReaderDeps = {
  readonly hostRequests: HostQueries
  readonly recent: RecentRows
  /** Returns the row with its cost. */
  readonly counted: (row: UsageRow) => DatedRow
  readonly clock: Pick<Clock, 'monotonicMs'>
}

const askTimeoutMs = 5_000
/** Time limit of one reading, from its start to the request of its last page. */
const readTimeoutMs = 10_000

export class DayReader {
  readonly #deps: DayReaderDeps
  readonly #readings = new DayReadings()

  constructor(deps: DayReaderDeps) {
    this.#deps = deps
  }

  /**
   * Reads the usage of a key by day and model. Faults: invalid_request (more rows than may be read),
   * metering_unavailable.
   */
  read(scope: DayScope): AsyncIterable<readonly DaySum[]> {
    const untilMs = this.#deps.clock.monotonicMs() + readTimeoutMs
    return this.#readings.read(scope, after => this.#ask(scope, after, untilMs))
  }

  async #ask(scope: DayScope, after: DayPlace | null, untilMs: number): Promise<DaysPage> {
    const { hostRequests, recent, counted, clock } = this.#deps
    if (clock.monotonicMs() >= untilMs) throw tooMuchAsked()
    const { organizationId, keyPrefix, from, to } = scope
    const place = after === null ? null : { day: after.day, model: after.model }
    const question = recent.begin()
    try {
      const answer = await hostRequests.ask(
        { kind: 'days', organizationId, keyPrefix, from, to, after: place },
        askTimeoutMs,
      )
      const page = checked(DaySums, answer, { what: 'sums of the host', code: 'metering_unavailable' })
      return withUnbooked(page, { scope, after }, question.rowsAfter(page.booked).map(counted))
    } catch (cause) {
      throw unknownUse(cause)
    } finally {
      question.end()
    }
  }
}
