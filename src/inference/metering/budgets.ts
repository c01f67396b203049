// Budgets of keys and organizations for a calendar month (UTC). Reserves a request's maximum cost before an upstream is
// asked, and releases it once the real cost is in the sums. State in memory: the reservations. No I/O but for the sums.
//
// Reservations count in every month, because a request that ends in the next month is charged there. Check and
// reservation are one turn of the event loop, so concurrent requests cannot exceed a budget together.

import { type Clock, iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { type MonthSum, monthEndMs, monthOf } from '../../store/directory/usage/usage-month.query.ts'
import type { Budget, Caller, Tokens } from '../types.ts'
import { withSpent } from './month-sums.ts'
import type { Spender, SpentSource } from './types.ts'

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

type Amounts = { readonly tokens: number; readonly nanoUsd: number }

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
/** Longest Retry-After for the next month: an operator may raise the budget before. */
const retryAfterSecondsMax = 3_600

export class Budgets {
  readonly #deps: BudgetsDeps
  /** By key, and by organization with an empty key. */
  readonly #reserved = new Map<string, Amounts>()

  constructor(deps: BudgetsDeps) {
    this.#deps = deps
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
    const request = { spender: caller, month: () => monthOf(clock.nowMs()) }
    return withSpent(source, request, ({ key, organization }, month) => {
      const places = [
        { name: `${organizationId}\n${keyPrefix}`, budget: budgets.key, sum: key, whose: 'this key' },
        { name: `${organizationId}\n`, budget: budgets.organization, sum: organization, whose: 'the organization' },
      ]
      for (const { name, budget, sum, whose } of places) {
        this.#check({ budget, spent: spentOf(sum), reserved: this.#of(name), amounts, whose, month })
      }
      for (const { name } of places) this.#add(name, amounts)
      let isReserved = true
      return () => {
        if (!isReserved) return
        isReserved = false
        for (const { name } of places) this.#add(name, { tokens: -amounts.tokens, nanoUsd: -amounts.nanoUsd })
      }
    })
  }

  /** Reservations by key. */
  open(): Reserved[] {
    return [...this.#reserved].flatMap(([name, amounts]) => {
      const [organizationId = '', keyPrefix = ''] = name.split('\n')
      return keyPrefix === '' ? [] : [{ organizationId, keyPrefix, ...amounts }]
    })
  }

  #of(name: string): Amounts {
    return this.#reserved.get(name) ?? { tokens: 0, nanoUsd: 0 }
  }

  #add(name: string, { tokens, nanoUsd }: Amounts): void {
    const before = this.#of(name)
    const after = { tokens: before.tokens + tokens, nanoUsd: before.nanoUsd + nanoUsd }
    if (after.tokens === 0 && after.nanoUsd === 0) this.#reserved.delete(name)
    else this.#reserved.set(name, after)
  }

  #check({ budget, spent, reserved, amounts, whose, month }: Place): void {
    for (const kind of ['nanoUsd', 'tokens'] as const) {
      const most = budget[kind]
      if (most === null || spent[kind] + reserved[kind] + amounts[kind] <= most) continue
      const mayFitSoon = spent[kind] + amounts[kind] <= most
      const untilEnd = Math.ceil((monthEndMs(month) - this.#deps.clock.nowMs()) / 1000)
      throw new BudgetFault(
        `The ${kind === 'tokens' ? 'token' : 'money'} budget of ${whose} for ${month} has no room for what this request can cost at most; ` +
          `a smaller max_tokens costs less. It begins anew at ${iso(monthEndMs(month))}.`,
        {
          retryAfterSeconds: mayFitSoon ? soonSeconds : Math.max(1, Math.min(retryAfterSecondsMax, untilEnd)),
          mayFitSoon,
        },
      )
    }
  }
}

type Place = {
  readonly budget: Budget
  readonly spent: Amounts
  readonly reserved: Amounts
  readonly amounts: Amounts
  readonly whose: string
  readonly month: string
}

export function hasBudget({ budgets }: Caller): boolean {
  return !isUnbounded(budgets.key) || !isUnbounded(budgets.organization)
}

function isUnbounded({ nanoUsd, tokens }: Budget): boolean {
  return nanoUsd === null && tokens === null
}

function spentOf({ promptTokens, completionTokens, costNanoUsd }: MonthSum): Amounts {
  return { tokens: promptTokens + completionTokens, nanoUsd: costNanoUsd }
}
