// Budgets of keys and organizations, converted between the admin interface and the store. Effects: reads the directory
// of a fleet.

import type { Static } from '@sinclair/typebox'
import { Fault } from '../base/fault.ts'
import { type AdminBudgetSet, type AdminKeyBudgetSet, endUsersDefault } from '../contract/admin/key-terms.ts'
import { nanoUsdOf, nanoUsdText } from '../contract/http/usd.ts'
import { SHORT_PERIODS, type ShortPeriod } from '../contract/key-rules.ts'
import type { GatewayKeyTerms } from '../store/directory/gateway-key.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import { monthOf, shortPeriodOf } from '../store/directory/usage/periods.ts'
import type { MonthSum } from '../store/directory/usage/usage-month.query.ts'

type AskedBudget = Static<typeof AdminBudgetSet>
type BudgetTerms = Pick<Organization, 'budgetNanoUsd' | 'budgetTokens' | 'shortBudgets'>
type KeyBudgetTerms = Pick<GatewayKeyTerms, keyof BudgetTerms>

/** Returns the changed terms. An absent field stays unchanged; null removes the budget. */
export function budgetTerms(asked: AskedBudget, before: BudgetTerms): BudgetTerms {
  const short = SHORT_PERIODS.flatMap(kind => {
    const known = before.shortBudgets?.[kind] ?? { nanoUsd: null, tokens: null }
    const nanoUsd = nanoUsdAsked(asked[`budget_${kind}_usd`], known.nanoUsd)
    const tokens = kept(asked[`budget_${kind}_tokens`], known.tokens)
    return nanoUsd === null && tokens === null ? [] : [[kind, { nanoUsd, tokens }] as const]
  })
  return {
    budgetNanoUsd: nanoUsdAsked(asked.budget_usd, before.budgetNanoUsd),
    budgetTokens: kept(asked.budget_tokens, before.budgetTokens),
    shortBudgets: short.length === 0 ? null : Object.fromEntries(short),
  }
}

/** Like `budgetTerms`, with the budget of each end user, which is replaced as a whole. */
export function keyBudgetTerms(asked: Static<typeof AdminKeyBudgetSet>, before: KeyBudgetTerms): KeyBudgetTerms {
  const terms = budgetTerms(asked, before)
  const { user_budget: user } = asked
  const set = user == null ? null : endUserBudget(user)
  const endUser = user === undefined ? before.shortBudgets?.endUser : (set ?? undefined)
  return endUser === undefined ? terms : { ...terms, shortBudgets: { ...terms.shortBudgets, endUser } }
}

function endUserBudget({ usd, period, users_max: usersMax = endUsersDefault, required = false }: UserBudget) {
  return { period, nanoUsd: nanoUsdOf(usd), usersMax, isRequired: required }
}

/** Returns the budget of each end user in the form of the admin interface; empty if the key has none. */
export function userBudgetView({ shortBudgets }: Pick<KeyBudgetTerms, 'shortBudgets'>): { user_budget?: UserBudget } {
  if (shortBudgets?.endUser === undefined) return {}
  const { period, nanoUsd, usersMax, isRequired } = shortBudgets.endUser
  return { user_budget: { usd: nanoUsdText(BigInt(nanoUsd)), period, users_max: usersMax, required: isRequired } }
}

type UserBudget = NonNullable<Static<typeof AdminKeyBudgetSet>['user_budget']>

type PriceCheck = {
  /** Models of the key; null for all. */
  readonly models: readonly string[] | null
  /** Models without a price. Default: none. */
  readonly unpriced?: readonly string[] | undefined
  /** Whether the models change while there is a budget in dollars. */
  readonly isWidened?: boolean
}

/** Checks that a budget in dollars counts the requests of every model that it is for. Throws Fault invalid_request. */
export function checkPriced(
  asked: Static<typeof AdminKeyBudgetSet>,
  { models, unpriced = [], isWidened = false }: PriceCheck,
): void {
  const param = USD_FIELDS.find(field => asked[field] != null) ?? (isWidened ? 'models' : undefined)
  const model = unpriced.find(name => models === null || models.includes(name))
  if (param === undefined || model === undefined) return
  const message = `model ${JSON.stringify(model)} has no price, so a budget in dollars would not count its requests; add it to [[inference.prices]] ("0.00" if it is free), or set a budget in tokens`
  throw new Fault('invalid_request', message, { param })
}

const USD_FIELDS = ['budget_usd', 'budget_day_usd', 'budget_week_usd', 'user_budget'] as const

/** Reports whether these terms have a budget in dollars. */
export function hasUsdBudget({ budgetNanoUsd, shortBudgets }: KeyBudgetTerms): boolean {
  const { day, week, endUser } = shortBudgets ?? {}
  return budgetNanoUsd !== null || day?.nanoUsd != null || week?.nanoUsd != null || endUser !== undefined
}

function nanoUsdAsked(usd: string | null | undefined, before: number | null): number | null {
  return usd === undefined || usd === null ? kept(usd, before) : nanoUsdOf(usd)
}

function kept<Value>(value: Value | undefined, before: Value): Value {
  return value === undefined ? before : value
}

/**
 * Returns the budget in the form of the admin interface. `sumOf`: usage in a period. `held`: amount held by hosts of
 * the fleet; null if it is unknown; absent if there is no fleet.
 */
export function budgetView(
  terms: BudgetTerms,
  { nowMs, sumOf }: { readonly nowMs: number; readonly sumOf: (period: string) => MonthSum },
  held?: HeldAmounts | null,
) {
  const { budgetNanoUsd, budgetTokens } = terms
  const sum = sumOf(monthOf(nowMs))
  return {
    budget_usd: usdOrNull(budgetNanoUsd),
    budget_tokens: budgetTokens,
    month_cost_usd: nanoUsdText(BigInt(sum.costNanoUsd)),
    month_tokens: sum.promptTokens + sum.completionTokens,
    ...(held === undefined
      ? {}
      : {
          month_held_usd: held === null || budgetNanoUsd === null ? null : nanoUsdText(BigInt(held.nanoUsd)),
          month_held_tokens: held === null || budgetTokens === null ? null : held.tokens,
        }),
    ...shortView(terms, kind => sumOf(shortPeriodOf(kind, nowMs))),
  }
}

function shortView({ shortBudgets }: BudgetTerms, sumOf: (kind: ShortPeriod) => MonthSum) {
  const fields = SHORT_PERIODS.flatMap((kind): [string, string | number | null][] => {
    const budget = shortBudgets?.[kind]
    if (budget === undefined) return []
    const sum = sumOf(kind)
    return [
      [`budget_${kind}_usd`, usdOrNull(budget.nanoUsd)],
      [`budget_${kind}_tokens`, budget.tokens],
      [`${kind}_cost_usd`, nanoUsdText(BigInt(sum.costNanoUsd))],
      [`${kind}_tokens`, sum.promptTokens + sum.completionTokens],
    ]
  })
  return Object.fromEntries(fields)
}

function usdOrNull(nanoUsd: number | null): string | null {
  return nanoUsd === null ? null : nanoUsdText(BigInt(nanoUsd))
}

type HeldAmounts = { readonly nanoUsd: number; readonly tokens: number }
