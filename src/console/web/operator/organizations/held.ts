// Parts of budgets that hosts of a fleet hold, as text behind the budget. Pure.

import type { AdminOrganization } from '../../../../contract/admin/admin.ts'
import { countText, usdText } from '../../core/format.ts'

type HeldBudget = Pick<AdminOrganization, 'month_held_usd' | 'month_held_tokens'>

/** Empty: nothing is held, or it is not known. */
export function usdHeldText({ month_held_usd: held }: HeldBudget): string {
  return held == null || Number(held) === 0 ? '' : `, hosts hold ${usdText(held)}`
}

export function tokensHeldText({ month_held_tokens: held }: HeldBudget): string {
  return held == null || held === 0 ? '' : `, hosts hold ${countText(held)}`
}
