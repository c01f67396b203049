// Budgets of keys and organizations, between the admin interface and the store. Pure.

import { nanoUsdOf, nanoUsdText } from '../contract/http/usd.ts'
import type { GatewayKeyTerms } from '../store/directory/gateway-key.query.ts'
import type { MonthSum } from '../store/directory/usage/usage-month.query.ts'

type AskedBudget = { readonly budget_usd?: string | null; readonly budget_tokens?: number | null }
type BudgetTerms = Pick<GatewayKeyTerms, 'budgetNanoUsd' | 'budgetTokens'>

/** A field left out stays as it is; null removes the budget. */
export function budgetTerms({ budget_usd: usd, budget_tokens: tokens }: AskedBudget, before: BudgetTerms): BudgetTerms {
  return {
    budgetNanoUsd: usd === undefined ? before.budgetNanoUsd : usd === null ? null : nanoUsdOf(usd),
    budgetTokens: tokens === undefined ? before.budgetTokens : tokens,
  }
}

export function budgetView({ budgetNanoUsd, budgetTokens }: BudgetTerms, sum: MonthSum) {
  return {
    budget_usd: budgetNanoUsd === null ? null : nanoUsdText(BigInt(budgetNanoUsd)),
    budget_tokens: budgetTokens,
    month_cost_usd: nanoUsdText(BigInt(sum.costNanoUsd)),
    month_tokens: sum.promptTokens + sum.completionTokens,
  }
}
