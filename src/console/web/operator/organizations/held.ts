// Formats budget blocks that hosts of a fleet hold, to append to the budget. Pure.

import type { AdminOrganization } from '../../../../contract/admin/admin.ts'
import { countText, usdText } from '../../core/format.ts'

type HeldBudget = Pick<AdminOrganization, 'month_held_usd' | 'month_held_tokens'>

/** Returns the text; empty if hosts hold nothing, or it is unknown. */
export function usdHeldText({ month_held_usd: held }: HeldBudget): string {
  return held == null || Number(held) === 0 ? '' : `, hosts hold ${usdText(held)}`
}

export function tokensHeldText({ month_held_tokens: held }: HeldBudget): string {
  return held == null || held === 0 ? '' : `, hosts hold ${countText(held)}`
}
