// Budgets of keys and organizations for a calendar month (UTC). Reserves a request's maximum cost before an upstream is
// asked, and releases it once the real cost is in the sums. State in memory: the reservations. No I/O but for the sums.
//
// In a fleet a host has a share of each budget, and asks for more when a request does not fit into it.
//
// Reservations count in every month, because a request that ends in the next month is charged there. Check and
// reservation are one turn of the event loop, so concurrent requests cannot exceed a budget together.

import { present } from '../../base/assert.ts'
import { type Clock, iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { monthEndMs, monthOf } from '../../store/directory/usage/usage-month.query.ts'
import type { Budget, Caller, Tokens } from '../types.ts'
import { unknownUse } from './faults.ts'
import { withSpent } from './month-sums.ts'
import { amountsOf, NO_AMOUNTS, negative, plus } from './shares/amounts.ts'
import type { Amounts, BudgetShares, Share, ShareAsked, Spender, SpentSource } from './types.ts'

export type BudgetsDeps = {
  readonly spent: SpentSource
  /** Current prices. */
  readonly cost: () => (model: string, tokens: Tokens) => bigint
  readonly clock: Pick<Clock, 'nowMs'>
}

export const NO_BUDGETS: Caller['budgets'] = {
  key: { nanoUsd: null, tokens: null },
  organization: { nanoUsd: null, tokens: null },
}

/** Releases the reservation; further calls have no effect. */
export type Release = () => void

export type Reserved = Amounts & Spender

/** A request that a budget has no room for. Fault budget_exceeded. */
export class BudgetFault extends Fault {
  readonly retryAfterSeconds: number
  /** Requests that run may cost less than is reserved for them: then there is room soon. */
  readonly mayFitSoon: boolean

  constructor(message: string, { retryAfterSeconds, mayFitSoon }: { retryAfterSeconds: number; mayFitSoon: boolean }) {
    super('budget_exceeded', message)
    this.retryAfterSeconds = retryAfterSeconds
    this.mayFitSoon = mayFitSoon
  }
}

const soonSeconds = 5
/** Rounds of asking for a share and finding that others have used it up meanwhile. */
const raisesMax = 16
/** Longest Retry-After for the next month: an operator may raise the budget before. */
const retryAfterSecondsMax = 3_600

export class Budgets {
  readonly #deps: BudgetsDeps
  /** By key, and by organization with an empty key. */
  readonly #reserved = new Map<string, Amounts>()
  /** Amounts that requests which wait for a share would reserve, likewise. */
  readonly #waiting = new Map<string, Amounts>()

  constructor(deps: BudgetsDeps) {
    this.#deps = deps
    deps.spent.shares?.follow(spender => of(this.#reserved, nameOf(spender)))
  }

  /** Nano-dollars at the current prices. */
  costOf(model: string, tokens: Tokens): bigint {
    return this.#deps.cost()(model, tokens)
  }

  /** Null: the request has no budget. Faults: budget_exceeded, metering_unavailable. */
  async reserve(caller: Caller, model: string, worst: Tokens): Promise<Release | null> {
    if (!hasBudget(caller)) return null
    const { budgets, organizationId, keyPrefix } = caller
    const { spent: source, cost, clock } = this.#deps
    const amounts = { tokens: worst.prompt + worst.completion, nanoUsd: Number(cost()(model, worst)) }
    const key: Place = { name: nameOf({ organizationId, keyPrefix }), budget: budgets.key, whose: 'this key' }
    const organization: Place = {
      name: nameOf({ organizationId, keyPrefix: '' }),
      budget: budgets.organization,
      whose: 'the organization',
    }
    const asked = { caller, places: { key, organization }, amounts }
    if (source.shares !== null) return await this.#reserveOfShares(source.shares, asked)
    const request = { spender: caller, month: () => monthOf(clock.nowMs()) }
    const release = await withSpent(source, request, (spent, month) => {
      // A gateway in a VM finds out that its host is in a fleet with the sums.
      if (source.shares !== null) return null
      this.#check(key, { spent: amountsOf(spent.key), amounts, month })
      this.#check(organization, { spent: amountsOf(spent.organization), amounts, month })
      return this.#take([key, organization], amounts)
    })
    return release ?? (await this.#reserveOfShares(present(this.#deps.spent.shares, 'the host is in a fleet'), asked))
  }

  /** Check and reservation are one turn here, too, after each turn of asking for more. */
  async #reserveOfShares(shares: BudgetShares, asked: Asked): Promise<Release> {
    const { caller, places, amounts } = asked
    const both = [places.key, places.organization]
    for (const { name } of both) add(this.#waiting, name, amounts)
    try {
      for (let attempt = 0; attempt < raisesMax; attempt += 1) {
        const month = monthOf(this.#deps.clock.nowMs())
        const share = shares.share(caller, month)
        const fits = ({ name, budget }: Place, share: Share) =>
          fitsShare(budget, share, plus(amounts, of(this.#reserved, name)))
        if (share !== null && fits(places.key, share.key) && fits(places.organization, share.organization)) {
          return this.#take(both, amounts)
        }
        const isAbove = ({ name, budget }: Place, { spent }: Share) =>
          !fitsShare(budget, { spent, allowed: boundless }, plus(amounts, of(this.#reserved, name)))
        if (share !== null && (isAbove(places.key, share.key) || isAbove(places.organization, share.organization))) {
          return await this.#refuse(asked)
        }
        const ask = ({ name, budget }: Place): ShareAsked | null => {
          if (isUnbounded(budget)) return null
          const reserved = of(this.#reserved, name)
          return { need: plus(reserved, amounts), want: plus(reserved, of(this.#waiting, name)) }
        }
        const hasRoom = await shares.raise(caller, month, () => ({
          key: ask(places.key),
          organization: ask(places.organization),
        }))
        if (!hasRoom) return await this.#refuse(asked)
      }
      throw unknownUse()
    } finally {
      for (const { name } of both) add(this.#waiting, name, negative(amounts))
    }
  }

  /** By the sums over all hosts: with those a request may fit soon, when others give back what they do not use. */
  async #refuse({ caller, places, amounts }: Asked): Promise<never> {
    const request = { spender: caller, month: () => monthOf(this.#deps.clock.nowMs()) }
    return await withSpent(this.#deps.spent, request, (spent, month): never => {
      this.#check(places.key, { spent: amountsOf(spent.key), amounts, month })
      this.#check(places.organization, { spent: amountsOf(spent.organization), amounts, month })
      const place = isUnbounded(places.organization.budget) ? places.key : places.organization
      throw this.#exceeded(place, {
        kind: place.budget.nanoUsd === null ? 'tokens' : 'nanoUsd',
        month,
        mayFitSoon: true,
      })
    })
  }

  #take(places: readonly Place[], amounts: Amounts): Release {
    for (const { name } of places) add(this.#reserved, name, amounts)
    let isReserved = true
    return () => {
      if (!isReserved) return
      isReserved = false
      for (const { name } of places) add(this.#reserved, name, negative(amounts))
    }
  }

  /** Reservations by key. */
  open(): Reserved[] {
    return [...this.#reserved].flatMap(([name, amounts]) => {
      const [organizationId = '', keyPrefix = ''] = name.split('\n')
      return keyPrefix === '' ? [] : [{ organizationId, keyPrefix, ...amounts }]
    })
  }

  #check(place: Place, { spent, amounts, month }: { spent: Amounts; amounts: Amounts; month: string }): void {
    const reserved = of(this.#reserved, place.name)
    for (const kind of ['nanoUsd', 'tokens'] as const) {
      const most = place.budget[kind]
      if (most === null || spent[kind] + reserved[kind] + amounts[kind] <= most) continue
      throw this.#exceeded(place, { kind, month, mayFitSoon: spent[kind] + amounts[kind] <= most })
    }
  }

  #exceeded({ whose }: Place, { kind, month, mayFitSoon }: Refused): BudgetFault {
    const untilEnd = Math.ceil((monthEndMs(month) - this.#deps.clock.nowMs()) / 1000)
    return new BudgetFault(
      `The ${kind === 'tokens' ? 'token' : 'money'} budget of ${whose} for ${month} cannot cover the maximum cost of this request. ` +
        `Lower max_tokens, or ask the operator to raise the budget. It resets at ${iso(monthEndMs(month))}.`,
      {
        retryAfterSeconds: mayFitSoon ? soonSeconds : Math.max(1, Math.min(retryAfterSecondsMax, untilEnd)),
        mayFitSoon,
      },
    )
  }
}

type Place = { readonly name: string; readonly budget: Budget; readonly whose: string }

type Asked = {
  readonly caller: Caller
  readonly places: { readonly key: Place; readonly organization: Place }
  readonly amounts: Amounts
}

type Refused = { readonly kind: keyof Amounts; readonly month: string; readonly mayFitSoon: boolean }

export function hasBudget({ budgets }: Caller): boolean {
  return !isUnbounded(budgets.key) || !isUnbounded(budgets.organization)
}

function isUnbounded({ nanoUsd, tokens }: Budget): boolean {
  return nanoUsd === null && tokens === null
}

const boundless: Amounts = { nanoUsd: Number.POSITIVE_INFINITY, tokens: Number.POSITIVE_INFINITY }

/** `used`: reserved, with the request that asks. A budget that was lowered counts at once. */
function fitsShare({ nanoUsd, tokens }: Budget, { spent, allowed }: Share, used: Amounts): boolean {
  const whole = plus(amountsOf(spent), used)
  const fits = (most: number | null, allowed: number, whole: number) =>
    most === null || whole <= Math.min(most, allowed)
  return fits(nanoUsd, allowed.nanoUsd, whole.nanoUsd) && fits(tokens, allowed.tokens, whole.tokens)
}

function nameOf({ organizationId, keyPrefix }: Spender): string {
  return `${organizationId}\n${keyPrefix}`
}

function of(sums: ReadonlyMap<string, Amounts>, name: string): Amounts {
  return sums.get(name) ?? NO_AMOUNTS
}

function add(sums: Map<string, Amounts>, name: string, amounts: Amounts): void {
  const after = plus(of(sums, name), amounts)
  if (after.tokens === 0 && after.nanoUsd === 0) sums.delete(name)
  else sums.set(name, after)
}
