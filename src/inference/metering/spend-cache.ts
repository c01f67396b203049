// Month sums of keys and organizations in a gateway VM: the sums of the host's ledger, fetched once, plus rows of this
// VM that they lack. Effects: calls the host.
//
// The host reports which rows of this VM are in its sums (`booked`, as in `next`), so that no row is missing or counted
// twice.
//
// In a fleet, the host's sums cover all hosts, and this host's share limits a budget. A host takes a share back from
// its VM only by asking for it (`lower`), so the share is valid until then, or until it is used up.

import type { Clock } from '../../base/clock.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import { checked } from '../../contract/check.ts'
import { MonthSums } from '../../contract/vm/enclave.ts'
import type { UsageRow } from '../../contract/vm/enclave-responses.ts'
import { isMonth, noUsage } from '../../store/directory/usage/periods.ts'
import type { DayScope, DaySum } from '../../store/directory/usage/usage-day.query.ts'
import type { MonthScope, MonthSum } from '../../store/directory/usage/usage-month.query.ts'
import { DayReader } from './day-reader.ts'
import type { DatedRow } from './day-sums.ts'
import { tooMuchAsked, unknownUse } from './faults.ts'
import { addSums, monthOfRow, periodsOfRow, scopeName, scopesOf, sumOfRow } from './month-sums.ts'
import type { Cost } from './price.ts'
import { type Question, RecentRows } from './recent-rows.ts'
import { tokensOfRow } from './row.ts'
import { amountsOf, plus } from './shares/amounts.ts'
import type { UsageSpool } from './spool.ts'
import type {
  BudgetShares,
  HostQueries,
  MonthSpent,
  Share,
  ShareDemand,
  ShareDemands,
  Spender,
  SpenderShares,
  SpentSource,
} from './types.ts'

export type SpendCacheDeps = {
  readonly hostRequests: HostQueries
  readonly spool: Pick<UsageSpool, 'booked' | 'unbooked'>
  /** Provides the current prices. */
  readonly control: { readonly cost: Cost }
  readonly clock: Pick<Clock, 'monotonicMs'>
}

/** `untilMs`: monotonic expiry, if another VM was writing to the ledger when the host answered; otherwise infinite. */
type CachedSum = { sum: MonthSum; untilMs: number; share: Share | null }

const askTimeoutMs = 5_000
/**
 * Concurrent requests to the host; certificates and evidence need some of the host's slots too. No share: one request
 * at a time for each key.
 */
const asksMax = 8
/** Queries that wait for one of those to be answered, as when a month begins. Share: a quarter for one organization. */
const waitingMax = 4_096
/** An organization may hold 1 / `waitingParts` of the places. */
const waitingParts = 4
/** How long sums to which another VM adds are valid. */
const sharedMs = 2_000
/**
 * Keys of a few months.
 * No share: keys are the operator's, and a dropped sum is requested again.
 */
const cachedMax = 262_144

export class SpendCache implements SpentSource {
  readonly #deps: SpendCacheDeps
  readonly #cached = new Map<string, CachedSum>()
  readonly #asking = new Map<string, Promise<void>>()
  /** Waiting queries, in order of arrival. */
  readonly #waiting: (() => void)[] = []
  readonly #places = new FairSlots(waitingMax)
  readonly #recent: RecentRows
  readonly #dayReader: DayReader
  /** Null until the host reports that it is in a fleet. */
  shares: BudgetShares | null = null
  /** Whether the last answer had shares, so the host supports them. */
  #isShared = false
  #isFleetKnown = true
  /** Whether the sums of a day or a week have been loaded. */
  #hasShort = false
  /** Prices of the sums in `#cached`. */
  #cost: Cost

  constructor(deps: SpendCacheDeps) {
    this.#deps = deps
    this.#recent = new RecentRows(deps.spool)
    this.#dayReader = new DayReader({ ...deps, recent: this.#recent, counted: row => this.#counted(row) })
    this.#cost = deps.control.cost
  }

  /** Adds a row of this VM. Call it when the row is recorded. */
  add(recorded: UsageRow): void {
    this.#followPrices()
    this.#recent.add(recorded)
    const row = this.#counted(recorded)
    for (const scope of this.#scopesOf(row)) {
      const known = this.#cached.get(scopeName(scope))
      if (known === undefined) continue
      known.sum = addSums(known.sum, sumOfRow(row))
      if (known.share !== null) known.share = { ...known.share, spent: addSums(known.share.spent, sumOfRow(row)) }
    }
  }

  #scopesOf(row: DatedRow): MonthScope[] {
    const periods = this.#hasShort ? periodsOfRow(row) : [monthOfRow(row)]
    return periods.flatMap(period => Object.values(scopesOf(row, period)))
  }

  spent(spender: Spender, month: string): MonthSpent | null {
    this.#hasShort ||= !isMonth(month)
    this.#followPrices()
    const scopes = scopesOf(spender, month)
    const [key, organization] = [this.#good(scopes.key), this.#good(scopes.organization)]
    return key === null || organization === null ? null : { key, organization }
  }

  load(spender: Spender, month: string): Promise<void> {
    return this.#load({ spender, month, asked: () => NOTHING })
  }

  #load(ask: SumsRequest): Promise<void> {
    const name = scopeName(scopesOf(ask.spender, ask.month).key)
    const asking = this.#asking.get(name)
    if (asking !== undefined) return asking
    return this.#asking.size < asksMax ? this.#begin(name, ask) : this.#beginInTurn(name, ask)
  }

  readonly #share = (spender: Spender, month: string): SpenderShares | null => {
    this.#followPrices()
    const scopes = scopesOf(spender, month)
    const of = (scope: MonthScope) => this.#cached.get(scopeName(scope))?.share ?? null
    const [key, organization] = [of(scopes.key), of(scopes.organization)]
    return key === null || organization === null ? null : { key, organization }
  }

  /**
   * Requests a larger share. If another request of the key is already asking, waits for it; the caller then rechecks.
   */
  readonly #acquire = async (spender: Spender, month: string, asked: () => ShareDemands): Promise<boolean> => {
    if (this.#asking.has(scopeName(scopesOf(spender, month).key))) {
      await this.#load({ spender, month, asked })
      return true
    }
    await this.#load({ spender, month, asked })
    const share = this.#share(spender, month)
    const { key, organization } = asked()
    if (share === null || (covers(share.key, key) && covers(share.organization, organization))) return true
    if (!this.#isFleetKnown) throw unknownUse()
    return false
  }

  /**
   * Drops this host's part of a budget: nothing more is admitted within it until the host has answered again. Returns
   * false, and drops nothing, while an answer that might restore it is pending.
   */
  lower(scope: MonthScope): boolean {
    if (this.#asking.size > 0) return false
    this.#cached.delete(scopeName(scope))
    return true
  }

  #begin(name: string, ask: SumsRequest): Promise<void> {
    const question = this.#recent.begin()
    const begun = this.#ask(ask, question).finally(() => {
      this.#asking.delete(name)
      question.end()
      this.#waiting.shift()?.()
    })
    this.#asking.set(name, begun)
    return begun
  }

  /** Waits for an open query to end, within `askTimeoutMs`. A waiter that no longer needs its turn passes it on. */
  async #beginInTurn(name: string, ask: SumsRequest): Promise<void> {
    const { clock } = this.#deps
    const untilMs = clock.monotonicMs() + askTimeoutMs
    while (this.#asking.size >= asksMax && !this.#asking.has(name)) {
      const leave = this.#places.take([{ name: ask.spender.organizationId, parts: waitingParts }])
      if (typeof leave === 'string') throw tooMuchAsked()
      await new Promise<void>(resolve => this.#waiting.push(resolve)).finally(leave)
      if (clock.monotonicMs() < untilMs) continue
      this.#waiting.shift()?.()
      throw tooMuchAsked()
    }
    // Another request of the key may have asked in the meantime, and received its answer.
    const asking = this.#asking.get(name)
    const isKnown = ask.asked() === NOTHING && this.spent(ask.spender, ask.month) !== null
    if (asking === undefined && !isKnown) return this.#begin(name, ask)
    this.#waiting.shift()?.()
    return asking
  }

  async #ask(ask: SumsRequest, question: Question): Promise<void> {
    let hostSums = await this.#answerOf(ask)
    if (hostSums.isShared && !this.#isShared) {
      this.#isShared = true
      hostSums = await this.#answerOf(ask)
    }
    const { booked, isShared, shares, ...sums } = hostSums
    this.#isShared = isShared
    if (shares !== undefined) {
      this.shares ??= { share: this.#share, raise: this.#acquire, follow: () => {} }
      this.#isFleetKnown = shares.isKnown
    }
    const untilMs = isShared ? this.#deps.clock.monotonicMs() + sharedMs : Number.POSITIVE_INFINITY
    if (this.#cached.size >= cachedMax) this.#cached.clear()
    const scopes = scopesOf(ask.spender, ask.month)
    const rows = question.rowsAfter(booked).map(row => this.#counted(row))
    this.#learn(scopes.key, { sum: sums.key, rows, untilMs, share: shares?.key ?? null })
    this.#learn(scopes.organization, { sum: sums.organization, rows, untilMs, share: shares?.organization ?? null })
  }

  /** Requests the sums from the host. Throws Fault metering_unavailable. */
  async #answerOf({ spender, month, asked }: SumsRequest): Promise<MonthSums> {
    const { organizationId, keyPrefix } = spender
    const want = { kind: 'spent', organizationId, keyPrefix, month } as const
    try {
      const answer = await this.#deps.hostRequests.ask(
        // Hosts of a fleet share only the budgets of months.
        this.#isShared && isMonth(month) ? { ...want, asked: this.#withUnbooked(spender, month, asked()) } : want,
        askTimeoutMs,
      )
      return checked(MonthSums, answer, { what: 'sums of the host', code: 'metering_unavailable' })
    } catch (cause) {
      throw unknownUse(cause)
    }
  }

  /** Adds the rows that the host has not recorded yet, because it counts only recorded ones. */
  #withUnbooked(spender: Spender, month: string, { key, organization }: ShareDemands): ShareDemands {
    if (key === null && organization === null) return { key, organization }
    const rows = this.#deps.spool.unbooked().map(row => this.#counted(row))
    const scopes = scopesOf(spender, month)
    const asked = (scope: MonthScope, of: ShareDemand | null): ShareDemand | null => {
      if (of === null) return null
      const unbooked = amountsOf(sumIn(scope, rows))
      return { need: plus(of.need, unbooked), want: plus(of.want, unbooked) }
    }
    return { key: asked(scopes.key, key), organization: asked(scopes.organization, organization) }
  }

  #learn(scope: MonthScope, { sum, rows, untilMs, share }: CachedSum & { readonly rows: readonly DatedRow[] }): void {
    const own = sumIn(scope, rows)
    this.#cached.set(scopeName(scope), {
      sum: addSums(sum, own),
      untilMs,
      share: share === null ? null : { ...share, spent: addSums(share.spent, own) },
    })
  }

  days(scope: DayScope): AsyncIterable<readonly DaySum[]> {
    return this.#dayReader.read(scope)
  }

  #counted(row: UsageRow): DatedRow {
    return { ...row, costNanoUsd: Number(this.#cost(row.model, tokensOfRow(row))) }
  }

  /** Drops all sums if the prices changed, because the host's sums use them. They are requested again. */
  #followPrices(): void {
    const { cost } = this.#deps.control
    if (cost === this.#cost) return
    this.#cost = cost
    this.#cached.clear()
  }

  #good(scope: MonthScope): MonthSum | null {
    const known = this.#cached.get(scopeName(scope))
    return known === undefined || this.#deps.clock.monotonicMs() >= known.untilMs ? null : known.sum
  }
}

type SumsRequest = {
  readonly spender: Spender
  readonly month: string
  /** Read when the request is sent. */
  readonly asked: () => ShareDemands
}

const NOTHING: ShareDemands = { key: null, organization: null }

function sumIn({ organizationId, keyPrefix, month }: MonthScope, rows: readonly DatedRow[]): MonthSum {
  return rows
    .filter(row => row.organizationId === organizationId && (keyPrefix === '' || row.keyPrefix === keyPrefix))
    .filter(row => periodsOfRow(row).includes(month))
    .map(sumOfRow)
    .reduce(addSums, noUsage)
}

function covers({ spent, allowed }: Share, asked: ShareDemand | null): boolean {
  if (asked === null) return true
  const whole = plus(amountsOf(spent), asked.need)
  return whole.nanoUsd <= allowed.nanoUsd && whole.tokens <= allowed.tokens
}
