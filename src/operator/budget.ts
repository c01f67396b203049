// Budgets of keys and organizations, between the admin interface and the store. Effects: asks the directory of a fleet.

import { nanoUsdOf, nanoUsdText } from '../contract/http/usd.ts'
import type { FleetAdmin, HeldAsked } from '../fleet/hosts/fleet-admin.ts'
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

/** `held`: by hosts of the fleet; null: it is not known; left out: there is no fleet. */
export function budgetView({ budgetNanoUsd, budgetTokens }: BudgetTerms, sum: MonthSum, held?: Held | null) {
  return {
    budget_usd: budgetNanoUsd === null ? null : nanoUsdText(BigInt(budgetNanoUsd)),
    budget_tokens: budgetTokens,
    month_cost_usd: nanoUsdText(BigInt(sum.costNanoUsd)),
    month_tokens: sum.promptTokens + sum.completionTokens,
    ...(held === undefined
      ? {}
      : {
          month_held_usd: held === null || budgetNanoUsd === null ? null : nanoUsdText(BigInt(held.nanoUsd)),
          month_held_tokens: held === null || budgetTokens === null ? null : held.tokens,
        }),
  }
}

type Held = { readonly nanoUsd: number; readonly tokens: number }

/** Looks up what hosts hold of budgets, as `budgetView` takes it. */
export type HeldOf = (organizationId: string, keyPrefix?: string) => Held | null | undefined

/** One question to the directory of a fleet; never rejects. */
export async function heldBy(fleet: Pick<FleetAdmin, 'held'> | null, asked: HeldAsked): Promise<HeldOf> {
  if (fleet === null) return () => undefined
  return (await fleet.held(asked)) ?? (() => null)
}
