// Month sums of keys and organizations in a gateway VM: the sums of the host's books, fetched once, plus this VM's rows
// that they lack. Effects: asks the host.
//
// The host reports which rows of this VM are in its sums (`booked`, as in `next`), so that no row is missing or counted
// twice.

import type { Clock } from '../../base/clock.ts'
import { Places } from '../../base/work/places.ts'
import { checked } from '../../contract/check.ts'
import { MonthSums, type UsageRow } from '../../contract/vm/enclave.ts'
import type { DayScope, DaySum } from '../../store/directory/usage/usage-day.query.ts'
import type { MonthScope, MonthSum } from '../../store/directory/usage/usage-month.query.ts'
import { DayReader } from './day-reader.ts'
import type { DatedRow } from './day-sums.ts'
import { tooMuchAsked, unknownUse } from './faults.ts'
import { addSums, monthOfRow, scopeName, scopesOf, sumOfRow } from './month-sums.ts'
import type { Cost } from './price.ts'
import { type Question, RecentRows } from './recent-rows.ts'
import { tokensOfRow } from './row.ts'
import type { UsageSpool } from './spool.ts'
import type { HostQueries, MonthSpent, Spender, SpentSource } from './types.ts'

export type SpentDeps = {
  readonly wants: HostQueries
  readonly spool: Pick<UsageSpool, 'booked' | 'unbooked'>
  /** Current prices. */
  readonly control: { readonly cost: Cost }
  readonly clock: Pick<Clock, 'monotonicMs'>
}

/** `untilMs`: monotonic; another VM wrote to the books when the host answered, so it is asked again after that. */
type Known = { sum: MonthSum; untilMs: number }

const askTimeoutMs = 5_000
/** Questions that are open at a time: certificates and evidence have to be asked for, too. */
const asksMax = 8
/** Questions that wait for one of those to be answered, as when a month begins. */
const waitingMax = 4_096
/** An organization may hold 1 / `waitingParts` of them. */
const waitingParts = 4
/** How long sums are good that another VM adds to. */
const sharedMs = 2_000
/** Keys of a few months. */
const knownMax = 262_144

export class Spent implements SpentSource {
  readonly #deps: SpentDeps
  readonly #known = new Map<string, Known>()
  readonly #asking = new Map<string, Promise<void>>()
  /** In the order in which they came. */
  readonly #waiting: (() => void)[] = []
  readonly #places = new Places(waitingMax)
  readonly #recent: RecentRows
  readonly #dayReader: DayReader
  /** Prices of the sums in `#known`. */
  #cost: Cost

  constructor(deps: SpentDeps) {
    this.#deps = deps
    this.#recent = new RecentRows(deps.spool)
    this.#dayReader = new DayReader({ ...deps, recent: this.#recent, counted: row => this.#counted(row) })
    this.#cost = deps.control.cost
  }

  /** Adds a row of this VM when it is recorded. */
  add(recorded: UsageRow): void {
    this.#followPrices()
    this.#recent.add(recorded)
    const row = this.#counted(recorded)
    for (const scope of Object.values(scopesOf(row, monthOfRow(row)))) {
      const known = this.#known.get(scopeName(scope))
      if (known !== undefined) known.sum = addSums(known.sum, sumOfRow(row))
    }
  }

  spent(spender: Spender, month: string): MonthSpent | null {
    this.#followPrices()
    const scopes = scopesOf(spender, month)
    const [key, organization] = [this.#good(scopes.key), this.#good(scopes.organization)]
    return key === null || organization === null ? null : { key, organization }
  }

  load(spender: Spender, month: string): Promise<void> {
    const name = scopeName(scopesOf(spender, month).key)
    const asking = this.#asking.get(name)
    if (asking !== undefined) return asking
    return this.#asking.size < asksMax ? this.#begin(name, spender, month) : this.#beginInTurn(name, spender, month)
  }

  #begin(name: string, spender: Spender, month: string): Promise<void> {
    const question = this.#recent.begin()
    const begun = this.#ask(spender, month, question).finally(() => {
      this.#asking.delete(name)
      question.end()
      this.#waiting.shift()?.()
    })
    this.#asking.set(name, begun)
    return begun
  }

  /** Waits for an open query to end, within `askTimeoutMs`. A waiter that no longer needs its turn passes it on. */
  async #beginInTurn(name: string, spender: Spender, month: string): Promise<void> {
    const { clock } = this.#deps
    const untilMs = clock.monotonicMs() + askTimeoutMs
    while (this.#asking.size >= asksMax && !this.#asking.has(name)) {
      const leave = this.#places.take([{ name: spender.organizationId, parts: waitingParts }])
      if (typeof leave === 'string') throw tooMuchAsked()
      await new Promise<void>(resolve => this.#waiting.push(resolve)).finally(leave)
      if (clock.monotonicMs() < untilMs) continue
      this.#waiting.shift()?.()
      throw tooMuchAsked()
    }
    // Meanwhile another request of the key may have asked, and been answered.
    const asking = this.#asking.get(name)
    const isKnown = this.spent(spender, month) !== null
    if (asking === undefined && !isKnown) return this.#begin(name, spender, month)
    this.#waiting.shift()?.()
    return asking
  }

  async #ask({ organizationId, keyPrefix }: Spender, month: string, { rowsAfter }: Question): Promise<void> {
    const { wants, clock } = this.#deps
    let hostSums: MonthSums
    try {
      const answer = await wants.ask({ kind: 'spent', organizationId, keyPrefix, month }, askTimeoutMs)
      hostSums = checked(MonthSums, answer, { what: 'sums of the host', code: 'metering_unavailable' })
    } catch (cause) {
      throw unknownUse(cause)
    }
    const { booked, isShared, ...sums } = hostSums
    const untilMs = isShared ? clock.monotonicMs() + sharedMs : Number.POSITIVE_INFINITY
    if (this.#known.size >= knownMax) this.#known.clear()
    const scopes = scopesOf({ organizationId, keyPrefix }, month)
    const rows = rowsAfter(booked).map(row => this.#counted(row))
    this.#learn(scopes.key, { sum: sums.key, rows, untilMs })
    this.#learn(scopes.organization, { sum: sums.organization, rows, untilMs })
  }

  #learn(scope: MonthScope, { sum, rows, untilMs }: { sum: MonthSum; rows: DatedRow[]; untilMs: number }): void {
    const name = scopeName(scope)
    const own = rows.filter(row =>
      Object.values(scopesOf(row, monthOfRow(row))).some(scope => scopeName(scope) === name),
    )
    this.#known.set(name, { sum: own.map(sumOfRow).reduce(addSums, sum), untilMs })
  }

  days(scope: DayScope): AsyncIterable<readonly DaySum[]> {
    return this.#dayReader.read(scope)
  }

  #counted(row: UsageRow): DatedRow {
    return { ...row, costNanoUsd: Number(this.#cost(row.model, tokensOfRow(row))) }
  }

  /** The host's sums are by its prices: after a change they are asked for anew. */
  #followPrices(): void {
    const { cost } = this.#deps.control
    if (cost === this.#cost) return
    this.#cost = cost
    this.#known.clear()
  }

  #good(scope: MonthScope): MonthSum | null {
    const known = this.#known.get(scopeName(scope))
    return known === undefined || this.#deps.clock.monotonicMs() >= known.untilMs ? null : known.sum
  }
}
