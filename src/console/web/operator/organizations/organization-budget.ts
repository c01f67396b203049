// Budgets of an organization: as typed, as a request, and as options of the command line. Pure.

import type { AdminOrganization } from '../../../../contract/admin/admin.ts'
import type { CommandOptions } from '../../core/command.ts'

/** Wire name, label and command line option of each budget. */
export const ORGANIZATION_BUDGETS = [
  ['budget_usd', 'Monthly budget (USD)', 'usd'],
  ['budget_tokens', 'Monthly budget (tokens)', 'tokens'],
  ['budget_day_usd', 'Daily budget (USD)', 'day-usd'],
  ['budget_day_tokens', 'Daily budget (tokens)', 'day-tokens'],
  ['budget_week_usd', 'Weekly budget (USD)', 'week-usd'],
  ['budget_week_tokens', 'Weekly budget (tokens)', 'week-tokens'],
] as const

type Name = (typeof ORGANIZATION_BUDGETS)[number][0]
/** Typed values; empty for no limit. */
export type TypedBudgets = Readonly<Record<Name, string>>

export function budgetsOf(organization: Pick<AdminOrganization, Name>): TypedBudgets {
  const typed = ORGANIZATION_BUDGETS.map(([name]) => [name, String(organization[name] ?? '')])
  return Object.fromEntries(typed) as TypedBudgets
}

export function budgetBody(typed: TypedBudgets): Record<Name, string | number | null> {
  const fields = ORGANIZATION_BUDGETS.map(([name]) => {
    const text = typed[name]
    return [name, text === '' ? null : name.endsWith('tokens') ? Number(text) : text]
  })
  return Object.fromEntries(fields)
}

export function budgetOptions(typed: TypedBudgets): CommandOptions {
  return Object.fromEntries(ORGANIZATION_BUDGETS.map(([name, , option]) => [option, typed[name] || 'none']))
}
