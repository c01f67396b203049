// An operator's settings for a gateway key, and budgets of keys and organizations, in the admin interface. Pure.

import { Type } from '@sinclair/typebox'
import { KeyAliases, KeyModels } from '../key-rules.ts'

/** Budgets for a calendar month (UTC). Null: no bound. */
export const budgetFields = {
  budget_usd: Type.Union([
    Type.String({ pattern: '^[0-9]{1,6}(\\.[0-9]{1,9})?$', description: 'Dollars' }),
    Type.Null(),
  ]),
  budget_tokens: Type.Union([Type.Integer({ minimum: 0, maximum: 1_000_000_000_000 }), Type.Null()]),
}

/** Usage of the running month, as booked. */
export const spentFields = { month_cost_usd: Type.String(), month_tokens: Type.Integer({ minimum: 0 }) }

/** Omitted fields stay unchanged. */
export const AdminBudgetSet = Type.Partial(Type.Object(budgetFields, { additionalProperties: false }))

const LimitOrNull = (maximum: number) => Type.Union([Type.Integer({ minimum: 1, maximum }), Type.Null()])
/** Null means the configured limit, and no expiry. */
export const gatewayKeyTerms = {
  requests_per_minute: LimitOrNull(1_000_000),
  tokens_per_minute: LimitOrNull(1_000_000_000),
  concurrency_max: LimitOrNull(65_536),
  expires_at: Type.Union([Type.String({ description: 'ISO 8601 UTC' }), Type.Null()]),
}
export const gatewayKeyRules = { models: KeyModels, aliases: KeyAliases, ...budgetFields }
