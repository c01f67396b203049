// Budgets of keys and organizations, for people. Pure.

import type { AdminOrganization } from '../../contract/admin/admin.ts'
import type { budgetFields as budgetTerms, heldFields, spentFields } from '../../contract/admin/key-terms.ts'
import { SHORT_PERIODS, type ShortPeriod } from '../../contract/key-rules.ts'

type Budgeted = Pick<AdminOrganization, keyof typeof budgetTerms | keyof typeof spentFields | keyof typeof heldFields>

/** Spent and budget of the running month, and of the day and the week where they have one (UTC). */
export function budgetFields(of: Budgeted): [string, string][] {
  return [
    [
      'cost this month',
      `${shortUsd(of.month_cost_usd)} USD ${ofBudget(of.budget_usd === null ? null : shortUsd(of.budget_usd))}${usdHeld(of)}`,
    ],
    ['tokens this month', `${of.month_tokens} ${ofBudget(of.budget_tokens)}${tokensHeld(of)}`],
    ...SHORT_PERIODS.flatMap(kind => shortParts(of, kind).map((text): [string, string] => [`this ${kind}`, text])),
  ]
}

/** In one cell. */
export function budgetText(of: Budgeted): string {
  const { budget_usd, budget_tokens, month_cost_usd, month_tokens } = of
  const parts = [
    ...(budget_usd === null ? [] : [`${shortUsd(month_cost_usd)}/${shortUsd(budget_usd)} USD${usdHeld(of)}`]),
    ...(budget_tokens === null ? [] : [`${month_tokens}/${budget_tokens} tokens${tokensHeld(of)}`]),
    ...SHORT_PERIODS.flatMap(kind => shortParts(of, kind).map(text => `${text} a ${kind}`)),
  ]
  return parts.length === 0 ? '-' : parts.join(' ')
}

function shortParts(of: Budgeted, kind: ShortPeriod): string[] {
  const usd = of[`budget_${kind}_usd`] ?? null
  const tokens = of[`budget_${kind}_tokens`] ?? null
  return [
    ...(usd === null ? [] : [`${shortUsd(of[`${kind}_cost_usd`] ?? '0')}/${shortUsd(usd)} USD`]),
    ...(tokens === null ? [] : [`${of[`${kind}_tokens`] ?? 0}/${tokens} tokens`]),
  ]
}

/**
 * Describes the amount that hosts of a fleet hold besides what is spent; empty if they hold nothing, or it is unknown.
 */
function usdHeld({ month_held_usd: held }: Budgeted): string {
  return held == null || Number(held) === 0 ? '' : `, hosts hold ${shortUsd(held)}`
}

function tokensHeld({ month_held_tokens: held }: Budgeted): string {
  return held == null || held === 0 ? '' : `, hosts hold ${held}`
}

function ofBudget(budget: string | number | null): string {
  return budget === null ? '(no budget)' : `of ${budget}`
}

/** Cents, and what is less than a cent only where there is any. */
function shortUsd(usd: string): string {
  return usd.replace(/(\.\d\d\d*?)0+$/, '$1')
}
