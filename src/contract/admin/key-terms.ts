// An operator's settings for a gateway key, and budgets of keys and organizations, in the admin interface. Pure.

import { Closed, OrNull } from '../forms.ts'
import { EndUserPeriod, endUsersOfKeyMax, KeyAliases, KeyModels } from '../key-rules.ts'
import { Type } from '../type.ts'

/** A name needs no quotes in a shell, and cannot be mistaken for an option. */
export const KeyName = Type.String({
  pattern: '^[A-Za-z0-9][A-Za-z0-9._@-]*$',
  maxLength: 64,
  description: "The operator's name for the key: letters, digits and `._@-`, beginning with a letter or digit",
})
/** Null, or left out: a key without a name. */
export const keyNameInput = { name: Type.Optional(OrNull(KeyName)) }
export const keyName = { name: OrNull(KeyName) }

/** The fault of a name, or null. */
export function keyNameProblem(name: string): string | null {
  if (name.length === 0 || name.length > 64) return 'must have 1 to 64 characters'
  if (/^[A-Za-z0-9][A-Za-z0-9._@-]*$/.test(name)) return null
  return 'may hold letters, digits and . _ @ - only, and begins with a letter or digit, like ci or laptop-2'
}

const BudgetUsd = OrNull(Type.String({ pattern: '^[0-9]{1,6}(\\.[0-9]{1,9})?$', description: 'Dollars' }))
const BudgetTokens = OrNull(Type.Integer({ minimum: 0, maximum: 1_000_000_000_000 }))

/** Budgets for a calendar month, a day and a week from Monday on (UTC). Null, or left out of a view: no bound. */
export const budgetFields = {
  budget_usd: BudgetUsd,
  budget_tokens: BudgetTokens,
  budget_day_usd: Type.Optional(BudgetUsd),
  budget_day_tokens: Type.Optional(BudgetTokens),
  budget_week_usd: Type.Optional(BudgetUsd),
  budget_week_tokens: Type.Optional(BudgetTokens),
}

const Spent = Type.Integer({ minimum: 0 })

/** Usage of the running month, as booked: in a fleet over all hosts; days and weeks where they have a budget. */
export const spentFields = {
  month_cost_usd: Type.String(),
  month_tokens: Spent,
  day_cost_usd: Type.Optional(Type.String()),
  day_tokens: Type.Optional(Spent),
  week_cost_usd: Type.Optional(Type.String()),
  week_tokens: Type.Optional(Spent),
}

/**
 * In a fleet: what hosts hold of the month's budget, granted to them and neither spent nor given back. Null if there
 * is no such budget, or the directory is unreachable now. Absent outside of a fleet.
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

/** End users that a key counts where its budget names no number. */
export const endUsersDefault = 1_000

/** Budget of each end user of a key, counted in the gateway's memory. Null, or left out of a view: no bound. */
const userBudget = {
  user_budget: Type.Optional(
    OrNull(
      Closed({
        usd: Type.String({ pattern: '^[0-9]{1,6}(\\.[0-9]{1,9})?$', description: 'Dollars' }),
        period: EndUserPeriod,
        users_max: Type.Optional(
          Type.Integer({
            minimum: 1,
            maximum: endUsersOfKeyMax,
            default: endUsersDefault,
            description: 'End users that the key counts; further ones share one budget.',
          }),
        ),
        required: Type.Optional(
          Type.Boolean({
            default: false,
            description: 'Whether each request has to name its end user. Otherwise those without share one budget.',
          }),
        ),
      }),
    ),
  ),
}

export const gatewayKeyRules = { models: KeyModels, aliases: KeyAliases, ...budgetFields, ...userBudget }
/** Budgets of a key. Omitted fields stay unchanged. */
export const AdminKeyBudgetSet = Type.Partial(Closed({ ...budgetFields, ...userBudget }))
