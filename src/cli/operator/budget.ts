// Budgets of keys and organizations, for people. Pure.

import type { AdminOrganization } from '../../contract/admin.ts'

type Budgeted = Pick<AdminOrganization, 'budget_usd' | 'budget_tokens' | 'month_cost_usd' | 'month_tokens'>

/** What is spent of what, in the running month (UTC). */
export function budgetFields(of: Budgeted): [string, string][] {
  return [
    ['cost this month', `${of.month_cost_usd} USD of ${of.budget_usd ?? 'no bound'}`],
    ['tokens this month', `${of.month_tokens} of ${of.budget_tokens ?? 'no bound'}`],
  ]
}

/** In one cell. */
export function budgetText({ budget_usd, budget_tokens, month_cost_usd, month_tokens }: Budgeted): string {
  const parts = [
    ...(budget_usd === null ? [] : [`${month_cost_usd}/${budget_usd} USD`]),
    ...(budget_tokens === null ? [] : [`${month_tokens}/${budget_tokens} tokens`]),
  ]
  return parts.length === 0 ? '-' : parts.join(' ')
}
