// Budgets of keys and organizations, for people. Pure.

import type { AdminOrganization } from '../../contract/admin/admin.ts'

type Budgeted = Pick<AdminOrganization, 'budget_usd' | 'budget_tokens' | 'month_cost_usd' | 'month_tokens'>

/** Spent and budget of the running month (UTC). */
export function budgetFields(of: Budgeted): [string, string][] {
  return [
    [
      'cost this month',
      `${shortUsd(of.month_cost_usd)} USD ${ofBudget(of.budget_usd === null ? null : shortUsd(of.budget_usd))}`,
    ],
    ['tokens this month', `${of.month_tokens} ${ofBudget(of.budget_tokens)}`],
  ]
}

/** In one cell. */
export function budgetText({ budget_usd, budget_tokens, month_cost_usd, month_tokens }: Budgeted): string {
  const parts = [
    ...(budget_usd === null ? [] : [`${shortUsd(month_cost_usd)}/${shortUsd(budget_usd)} USD`]),
    ...(budget_tokens === null ? [] : [`${month_tokens}/${budget_tokens} tokens`]),
  ]
  return parts.length === 0 ? '-' : parts.join(' ')
}

function ofBudget(budget: string | number | null): string {
  return budget === null ? '(no budget)' : `of ${budget}`
}

/** Cents, and what is less than a cent only where there is any. */
function shortUsd(usd: string): string {
  return usd.replace(/(\.\d\d\d*?)0+$/, '$1')
}
