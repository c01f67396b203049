// An operator's settings for a gateway key, and budgets of keys and organizations, in the admin interface. Pure.

import { Type } from '@sinclair/typebox'
import { Closed, OrNull } from '../forms.ts'
import { KeyAliases, KeyModels } from '../key-rules.ts'

/** Budgets for a calendar month (UTC). Null: no bound. */
export const budgetFields = {
  budget_usd: OrNull(Type.String({ pattern: '^[0-9]{1,6}(\\.[0-9]{1,9})?$', description: 'Dollars' })),
  budget_tokens: OrNull(Type.Integer({ minimum: 0, maximum: 1_000_000_000_000 })),
}

/** Usage of the running month, as booked: in a fleet over all hosts. */
export const spentFields = { month_cost_usd: Type.String(), month_tokens: Type.Integer({ minimum: 0 }) }

/**
 * In a fleet: what hosts hold of the month's budget, granted to them and neither spent nor given back. Null: there is
 * no such budget, or the directory cannot be asked now. Absent outside of a fleet.
 */
export const heldFields = {
  month_held_usd: Type.Optional(OrNull(Type.String())),
  month_held_tokens: Type.Optional(OrNull(Type.Integer({ minimum: 0 }))),
}

/** Omitted fields stay unchanged. */
export const AdminBudgetSet = Type.Partial(Closed(budgetFields))

const LimitOrNull = (maximum: number) => OrNull(Type.Integer({ minimum: 1, maximum }))
/** Null means the configured limit, and no expiry. */
export const gatewayKeyTerms = {
  requests_per_minute: LimitOrNull(1_000_000),
  tokens_per_minute: LimitOrNull(1_000_000_000),
  concurrency_max: LimitOrNull(65_536),
  expires_at: OrNull(Type.String({ description: 'ISO 8601 UTC' })),
}
export const gatewayKeyRules = { models: KeyModels, aliases: KeyAliases, ...budgetFields }
