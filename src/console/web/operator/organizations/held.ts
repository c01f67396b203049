// Formats counts of an organization: its instances, and budget blocks that hosts of a fleet hold. Pure.

import type { AdminOrganization } from '../../../../contract/admin/admin.ts'
import { countText, usdText } from '../../core/format.ts'

type HeldBudget = Pick<AdminOrganization, 'month_held_usd' | 'month_held_tokens'>

/** Formats instances: `4 running, 1 failed`. */
export function instancesText(row: Pick<AdminOrganization, 'instances_living' | 'instances_failed'>): string {
  const failed = row.instances_failed === 0 ? '' : `, ${countText(row.instances_failed)} failed`
  return `${countText(row.instances_living)} running${failed}`
}

/** Returns the text; empty if hosts hold nothing, or it is unknown. */
export function usdHeldText({ month_held_usd: held }: HeldBudget): string {
  return held == null || Number(held) === 0 ? '' : `, ${usdText(held)} reserved by hosts`
}

export function tokensHeldText({ month_held_tokens: held }: HeldBudget): string {
  return held == null || held === 0 ? '' : `, ${countText(held)} reserved by hosts`
}
