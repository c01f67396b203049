// Usage of a key by day (UTC) and model: pages of the ledger plus the rows that they lack. No I/O.
//
// A page and the rows it lacks are exact as of one moment, so the reader takes both at once.

import { Fault } from '../../base/fault.ts'
import { FairSerial } from '../../base/work/fair-serial.ts'
import { tooManyUsageRows } from '../../contract/http/usage-rows.ts'
import { dayOf, noUsage } from '../../store/directory/usage/periods.ts'
import type { DayPlace, DayScope, DaySum, DaysPage } from '../../store/directory/usage/usage-day.query.ts'
import { tooMuchAsked } from './faults.ts'
import { addSums, type CountedRow, sumOfRow } from './month-sums.ts'

/** The fields of a usage row that sums of days need. */
export type DatedRow = CountedRow & { readonly model: string }

/** Rows of one reading: a year of 27 models. No share: limits one response. */
export const daysReadMax = 10_000

/** Returns all pages in order. Faults: invalid_request (more than `daysReadMax` rows), and those of `readPage`. */
export async function* readDays(
  readPage: (after: DayPlace | null) => Promise<DaysPage>,
): AsyncGenerator<readonly DaySum[]> {
  let count = 0
  for (let after: DayPlace | null = null; ; ) {
    const { rows, isLast }: DaysPage = await readPage(after)
    count += rows.length
    if (count > daysReadMax) throw tooManyUsageRows(daysReadMax)
    yield rows
    if (isLast) return
    after = rows.at(-1) ?? null
    if (after === null) throw new Fault('metering_unavailable', 'Usage data is incomplete; try again later.')
  }
}

/**
 * Pages of one organization that wait for those before them.
 * Share: this limit is the share of one organization; organizations take turns.
 */
const pagesWaitingMax = 64

/** Readings of several organizations at once: one page at a time, organizations in turn. */
export class DayReadings {
  /** Queue by organization. */
  readonly #pages = new FairSerial()

  /** Reads the pages in turn. Faults: those of `readDays`; metering_unavailable (too many pages wait). */
  read(
    { organizationId }: DayScope,
    readPage: (after: DayPlace | null) => Promise<DaysPage>,
  ): AsyncIterable<readonly DaySum[]> {
    return readDays(async after => {
      if (this.#pages.size(organizationId) >= pagesWaitingMax) throw tooMuchAsked()
      return this.#pages.run(organizationId, () => readPage(after))
    })
  }
}

/** Returns the page after `after`, including unbooked rows of its days and models. */
export function withUnbooked(
  { rows: booked, isLast }: DaysPage,
  { scope, after }: { readonly scope: DayScope; readonly after: DayPlace | null },
  unbooked: readonly DatedRow[],
): DaysPage {
  const last = isLast ? null : (booked.at(-1) ?? null)
  const sums = new Map(booked.map(sum => [placeName(sum), sum]))
  for (const row of unbooked) {
    if (row.organizationId !== scope.organizationId || row.keyPrefix !== scope.keyPrefix) continue
    const place = { day: dayOfRow(row), model: row.model }
    if (place.day < scope.from || place.day > scope.to) continue
    if (after !== null && comparePlaces(place, after) <= 0) continue
    if (last !== null && comparePlaces(place, last) > 0) continue
    const name = placeName(place)
    sums.set(name, { ...place, ...addSums(sums.get(name) ?? noUsage, sumOfRow(row)) })
  }
  return { rows: [...sums.values()].sort(comparePlaces), isLast }
}

/** Returns the day of a row; as in the store, the last day for a time outside the calendar. */
export function dayOfRow({ atMs }: Pick<CountedRow, 'atMs'>): string {
  return atMs >= 0 && atMs < endOfDaysMs ? dayOf(atMs) : '9999-12-31'
}

const endOfDaysMs = Date.UTC(10_000, 0)

function placeName({ day, model }: DayPlace): string {
  return `${day}\n${model}`
}

/** Compares as the store does: strings by their UTF-8 bytes. */
function comparePlaces(place: DayPlace, other: DayPlace): number {
  if (place.day !== other.day) return place.day < other.day ? -1 : 1
  return Buffer.compare(Buffer.from(place.model), Buffer.from(other.model))
}
