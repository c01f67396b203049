// Budgets of keys and organizations for a calendar month, a week or a day (UTC). Reserves a request's maximum cost
// before an upstream is called, and releases it once the real cost is in the sums. State in memory: the reservations.
// No I/O except for the sums.
//
// In a fleet a host has a share of each month's budget, and requests more when a request does not fit into it.
// Budgets of a week or a day are enforced by the sums that other hosts have reported.
//
// Reservations count in every period, because a request that ends in the next one is charged there. Check and
// reservation are one turn of the event loop, so concurrent requests cannot exceed a budget together.

import { present } from '../../base/assert.ts'
import { type Clock, iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { monthOf, periodEndMs, periodText, shortPeriodOf } from '../../store/directory/usage/periods.ts'
import type { Budget, Caller, Tokens } from '../types.ts'
import { EndUsers } from './end-users.ts'
import { unknownUse } from './faults.ts'
import { type PeriodSpent, withSpent } from './month-sums.ts'
import { amountsOf, NO_AMOUNTS, negative, plus } from './shares/amounts.ts'
import type { Amounts, BudgetShares, Share, ShareDemand, Spender, SpentSource } from './types.ts'

export type BudgetsDeps = {
  readonly spent: SpentSource
  /** Returns the function that computes a cost at the current prices. */
  readonly cost: () => (model: string, tokens: Tokens) => bigint
  readonly clock: Pick<Clock, 'nowMs'>
}

export const NO_BUDGETS: Caller['budgets'] = {
  key: { nanoUsd: null, tokens: null },
  organization: { nanoUsd: null, tokens: null },
}

/**
 * Releases the reservation, once the cost is in the sums of keys and organizations. The cost of the request counts for
 * its end user; omit it if no upstream was called. Further calls have no effect.
 */
export type Release = (costNanoUsd?: number) => void

export type Reserved = Amounts & Spender

/** A request that does not fit into a budget. Fault budget_exceeded. */
export class BudgetFault extends Fault {
  /** Whether there may soon be room, because running requests may cost less than is reserved for them. */
  readonly mayFitSoon: boolean

  constructor(message: string, { mayFitSoon }: { readonly mayFitSoon: boolean }) {
    super('budget_exceeded', message)
    this.mayFitSoon = mayFitSoon
  }
}

/** Seconds after which to retry a request that may fit soon. */
export const soonSeconds = 5
/**
 * Rounds of requesting a share after others have used it up. No share: limits one request, one statement in each
 * round.
 */
const raisesMax = 16

export class Budgets {
  readonly #deps: BudgetsDeps
  /** Reservations by key, and by organization under an empty key. */
  readonly #reserved = new Map<string, Amounts>()
  /** Amounts that requests waiting for a share would reserve, with the same keys. */
  readonly #waiting = new Map<string, Amounts>()
  readonly #endUsers: EndUsers

  constructor(deps: BudgetsDeps) {
    this.#deps = deps
    this.#endUsers = new EndUsers(deps.clock)
    deps.spent.shares?.follow(spender => amountsFor(this.#reserved, nameOf(spender)))
  }

  /** Returns the cost in nano-dollars at the current prices. */
  costOf(model: string, tokens: Tokens): bigint {
    return this.#deps.cost()(model, tokens)
  }

  /**
   * Reserves a request's maximum cost. Null if the request has no budget. `endUser`: null if the request names none.
   * Faults: budget_exceeded, metering_unavailable, invalid_request (the key requires an end user).
   */
  async reserve(
    caller: Caller,
    model: string,
    { worst, endUser }: { readonly worst: Tokens; readonly endUser: string | null },
  ): Promise<Release | null> {
    if (!hasBudget(caller)) return null
    const amounts = { tokens: worst.prompt + worst.completion, nanoUsd: Number(this.costOf(model, worst)) }
    const ofUser = this.#endUsers.reserve(caller, endUser, amounts.nanoUsd)
    if (!ofUser.ok) throw this.#exceeded(ofUser, { kind: 'nanoUsd', ...ofUser })
    try {
      const release = hasOwnBudget(caller) ? await this.#reserveOwn(caller, amounts) : null
      return (costNanoUsd = 0) => {
        release?.()
        ofUser.release(costNanoUsd)
      }
    } catch (error) {
      ofUser.release(0)
      throw error
    }
  }

  /** Reserves within the budgets of the key and the organization. */
  async #reserveOwn(caller: Caller, amounts: Amounts): Promise<() => void> {
    const { budgets, organizationId, keyPrefix } = caller
    const { spent: source } = this.#deps
    const key: BudgetScope = { name: nameOf({ organizationId, keyPrefix }), budget: budgets.key, whose: 'this key' }
    const organization: BudgetScope = {
      name: nameOf({ organizationId, keyPrefix: '' }),
      budget: budgets.organization,
      whose: 'the organization',
    }
    const asked = { caller, places: { key, organization }, amounts }
    if (source.shares !== null) return await this.#reserveOfShares(source.shares, asked)
    const release = await withSpent(source, this.#periodsOf(caller), spent => {
      // A gateway in a VM learns from the sums whether its host is in a fleet.
      if (source.shares !== null) return null
      this.#checkAll(asked, spent)
      return this.#take([key, organization], amounts)
    })
    return (
      release ?? (await this.#reserveOfShares(present(this.#deps.spent.shares, 'the host belongs to a fleet'), asked))
    )
  }

  /** Checks and reserves in one turn here too, after each round of requesting more. */
  async #reserveOfShares(shares: BudgetShares, asked: ReservationRequest): Promise<() => void> {
    const { caller, places, amounts } = asked
    const both = [places.key, places.organization]
    for (const { name } of both) addAmounts(this.#waiting, name, amounts)
    try {
      for (let attempt = 0; attempt < raisesMax; attempt += 1) {
        const month = monthOf(this.#deps.clock.nowMs())
        const share = shares.share(caller, month)
        const fits = ({ name, budget }: BudgetScope, share: Share) =>
          fitsShare(budget, share, plus(amounts, amountsFor(this.#reserved, name)))
        if (share !== null && fits(places.key, share.key) && fits(places.organization, share.organization)) {
          const unknown = this.#checkShort(asked)
          if (unknown === null) return this.#take(both, amounts)
          await this.#deps.spent.load(caller, unknown)
          continue
        }
        const isAbove = ({ name, budget }: BudgetScope, { spent }: Share) =>
          !fitsShare(budget, { spent, allowed: boundless }, plus(amounts, amountsFor(this.#reserved, name)))
        if (share !== null && (isAbove(places.key, share.key) || isAbove(places.organization, share.organization))) {
          return await this.#refuse(asked)
        }
        const ask = ({ name, budget }: BudgetScope): ShareDemand | null => {
          if (isUnbounded(budget)) return null
          const reserved = amountsFor(this.#reserved, name)
          return { need: plus(reserved, amounts), want: plus(reserved, amountsFor(this.#waiting, name)) }
        }
        const hasRoom = await shares.raise(caller, month, () => ({
          key: ask(places.key),
          organization: ask(places.organization),
        }))
        if (!hasRoom) return await this.#refuse(asked)
      }
      throw unknownUse()
    } finally {
      for (const { name } of both) addAmounts(this.#waiting, name, negative(amounts))
    }
  }

  /** Returns the month and the caller's short periods, in the order of `budgetsOf`. */
  #periodsOf(caller: Caller): { readonly spender: Spender; readonly periods: () => readonly string[] } {
    const nowMs = () => this.#deps.clock.nowMs()
    const short = caller.budgets.short ?? []
    return {
      spender: caller,
      periods: () => [monthOf(nowMs()), ...short.map(({ kind }) => shortPeriodOf(kind, nowMs()))],
    }
  }

  /**
   * Throws the fault for a request that does not fit. Uses the sums over all hosts, because the request may fit soon,
   * when others return unused shares.
   */
  async #refuse(asked: ReservationRequest): Promise<never> {
    const { caller, places } = asked
    return await withSpent(this.#deps.spent, this.#periodsOf(caller), (spent): never => {
      this.#checkAll(asked, spent)
      const place = isUnbounded(places.organization.budget) ? places.key : places.organization
      throw this.#exceeded(place, {
        kind: place.budget.nanoUsd === null ? 'tokens' : 'nanoUsd',
        period: present(spent[0], 'there are sums of each period').period,
        mayFitSoon: true,
      })
    })
  }

  /**
   * Checks the short periods on a host in a fleet. Returns a period whose sums are not loaded yet; null if the request
   * fits into all.
   */
  #checkShort(asked: ReservationRequest): string | null {
    const faults: BudgetFault[] = []
    for (const pair of asked.caller.budgets.short ?? []) {
      const period = shortPeriodOf(pair.kind, this.#deps.clock.nowMs())
      const spent = this.#deps.spent.spent(asked.caller, period)
      if (spent === null) return period
      faults.push(...this.#faultsOf(asked, pair, { period, spent }))
    }
    throwLasting(faults)
    return null
  }

  /** Checks all periods. `spent`: in the order of `#periodsOf`. Throws Fault budget_exceeded. */
  #checkAll(asked: ReservationRequest, spent: readonly PeriodSpent[]): void {
    const pairs = budgetsOf(asked.caller)
    throwLasting(spent.flatMap((item, at) => this.#faultsOf(asked, present(pairs[at], 'one period each'), item)))
  }

  #faultsOf(
    { places, amounts }: ReservationRequest,
    budgets: BudgetPair,
    { period, spent }: PeriodSpent,
  ): BudgetFault[] {
    return (['key', 'organization'] as const).flatMap(side => {
      const place = { ...places[side], budget: budgets[side] }
      return this.#faultsIn(place, { spent: amountsOf(spent[side]), amounts, period })
    })
  }

  #take(places: readonly BudgetScope[], amounts: Amounts): () => void {
    for (const { name } of places) addAmounts(this.#reserved, name, amounts)
    let isReserved = true
    return () => {
      if (!isReserved) return
      isReserved = false
      for (const { name } of places) addAmounts(this.#reserved, name, negative(amounts))
    }
  }

  /** Returns the reservations by key. */
  open(): Reserved[] {
    return [...this.#reserved].flatMap(([name, amounts]) => {
      const [organizationId = '', keyPrefix = ''] = name.split('\n')
      return keyPrefix === '' ? [] : [{ organizationId, keyPrefix, ...amounts }]
    })
  }

  #faultsIn(
    place: BudgetScope,
    { spent, amounts, period }: { spent: Amounts; amounts: Amounts; period: string },
  ): BudgetFault[] {
    const reserved = amountsFor(this.#reserved, place.name)
    return (['nanoUsd', 'tokens'] as const).flatMap(kind => {
      const most = place.budget[kind]
      if (most === null || spent[kind] + reserved[kind] + amounts[kind] <= most) return []
      return [this.#exceeded(place, { kind, period, mayFitSoon: spent[kind] + amounts[kind] <= most })]
    })
  }

  #exceeded({ whose }: Pick<BudgetScope, 'whose'>, { kind, period, mayFitSoon }: BudgetRefusal): BudgetFault {
    return new BudgetFault(
      `The ${kind === 'tokens' ? 'token' : 'money'} budget of ${whose} for ${periodText(period)} cannot cover the maximum cost of this request. ` +
        `Lower max_tokens, or ask the operator to raise the budget. It resets at ${iso(periodEndMs(period))}.`,
      { mayFitSoon },
    )
  }
}

type BudgetScope = { readonly name: string; readonly budget: Budget; readonly whose: string }

type ReservationRequest = {
  readonly caller: Caller
  readonly places: { readonly key: BudgetScope; readonly organization: BudgetScope }
  readonly amounts: Amounts
}

type BudgetPair = Pick<Caller['budgets'], 'key' | 'organization'>

type BudgetRefusal = { readonly kind: keyof Amounts; readonly period: string; readonly mayFitSoon: boolean }

/** Returns the month's budgets, and those of each short period. */
function budgetsOf({ budgets }: Caller): readonly BudgetPair[] {
  return [budgets, ...(budgets.short ?? [])]
}

/** Throws the first fault that a retry cannot resolve, otherwise the first fault. */
function throwLasting(faults: readonly BudgetFault[]): void {
  const fault = faults.find(({ mayFitSoon }) => !mayFitSoon) ?? faults[0]
  if (fault !== undefined) throw fault
}

export function hasBudget(caller: Caller): boolean {
  return hasOwnBudget(caller) || caller.budgets.endUser !== undefined
}

/** Reports whether the key or its organization has a budget. */
function hasOwnBudget({ budgets }: Caller): boolean {
  return !isUnbounded(budgets.key) || !isUnbounded(budgets.organization) || budgets.short !== undefined
}

function isUnbounded({ nanoUsd, tokens }: Budget): boolean {
  return nanoUsd === null && tokens === null
}

const boundless: Amounts = { nanoUsd: Number.POSITIVE_INFINITY, tokens: Number.POSITIVE_INFINITY }

/**
 * Reports whether the amount fits into the share. `used`: the reserved amount, including this request. A lowered budget
 * applies at once.
 */
function fitsShare({ nanoUsd, tokens }: Budget, { spent, allowed }: Share, used: Amounts): boolean {
  const whole = plus(amountsOf(spent), used)
  const fits = (most: number | null, allowed: number, whole: number) =>
    most === null || whole <= Math.min(most, allowed)
  return fits(nanoUsd, allowed.nanoUsd, whole.nanoUsd) && fits(tokens, allowed.tokens, whole.tokens)
}

function nameOf({ organizationId, keyPrefix }: Spender): string {
  return `${organizationId}\n${keyPrefix}`
}

function amountsFor(sums: ReadonlyMap<string, Amounts>, name: string): Amounts {
  return sums.get(name) ?? NO_AMOUNTS
}

function addAmounts(sums: Map<string, Amounts>, name: string, amounts: Amounts): void {
  const after = plus(amountsFor(sums, name), amounts)
  if (after.tokens === 0 && after.nanoUsd === 0) sums.delete(name)
  else sums.set(name, after)
}
