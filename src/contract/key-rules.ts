// Rules and maker of a gateway key, on every wire that carries them: a list of models, its own
// names for them, and the side that drew the secret. Pure.

import { Closed, OrNull } from './forms.ts'
import { type Static, Type } from './type.ts'

/**
 * `client`: the key was registered by its digest, so that the host never had the secret. `host`: the host minted the
 * key and can act as its client. The host reports this value: only a client that made its key itself can rely on
 * `client`.
 */
export const KeyMaker = Type.Union([Type.Literal('client'), Type.Literal('host')])
export type KeyMaker = Static<typeof KeyMaker>

const keyModelsMax = 32
const keyAliasesMax = 32

/** No character that ends a line, in a log or a header. */
const Name = Type.String({ minLength: 1, maxLength: 256, pattern: '^[^\\u0000-\\u001f\\u007f]*$' })

/** Null for every model of the gateway; empty for none. */
export const KeyModels = OrNull(Type.Array(Name, { maxItems: keyModelsMax, uniqueItems: true }))

/** The model for each name that is not a model's id. Null if there are none. */
export const KeyAliases = OrNull(Type.Array(Closed({ name: Name, model: Name }), { maxItems: keyAliasesMax }))

const Amount = OrNull(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }))
const ShortBudget = Type.Optional(Closed({ nanoUsd: Amount, tokens: Amount }))

/** Budgets of a day and of a week, which begins on Monday (UTC). Null if there is none. */
export const ShortBudgets = OrNull(Closed({ day: ShortBudget, week: ShortBudget }))
export type ShortBudgets = Static<typeof ShortBudgets>

/** Periods of budgets beside the calendar month. */
export const SHORT_PERIODS = ['day', 'week'] as const
export type ShortPeriod = (typeof SHORT_PERIODS)[number]

/** Most end users that a key may count. */
export const endUsersOfKeyMax = 4_096

export const EndUserPeriod = Type.Union([Type.Literal('day'), Type.Literal('week'), Type.Literal('month')])

/** Budget of each end user of a key in a period (UTC). */
export const EndUserBudget = Closed({
  period: EndUserPeriod,
  nanoUsd: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  /** End users that the key counts in a period; further ones share one budget. */
  usersMax: Type.Integer({ minimum: 1, maximum: endUsersOfKeyMax }),
  /** Whether a request has to name its end user. Requests without a name share one budget otherwise. */
  isRequired: Type.Boolean(),
})
export type EndUserBudget = Static<typeof EndUserBudget>

/** Budgets of a key beside that of the month, as the store has them. */
export type KeyShortBudgets = (ShortBudgets & { readonly endUser?: EndUserBudget }) | null

export type KeyRules = {
  readonly models: Static<typeof KeyModels>
  readonly aliases: Static<typeof KeyAliases>
}

export const NO_RULES: KeyRules = { models: null, aliases: null }

/** The models of a gateway, as the rules of keys see them. */
export type OfferedModels = {
  readonly served: ReadonlySet<string>
  /** Models that an alias may stand for: those inside the attestation if there are any, otherwise all. */
  readonly aliased: ReadonlySet<string>
}

/** A model that upstreams inside and outside both answer counts as one outside. */
export function offeredModels(
  upstreams: readonly { readonly models: readonly string[]; readonly isInside: boolean }[],
): OfferedModels {
  const modelsOf = (isInside: boolean) =>
    upstreams.filter(upstream => upstream.isInside === isInside).flatMap(upstream => upstream.models)
  const outside = new Set(modelsOf(false))
  const inside = new Set(modelsOf(true)).difference(outside)
  return {
    served: new Set(upstreams.flatMap(upstream => upstream.models)),
    aliased: upstreams.some(upstream => upstream.isInside) ? inside : outside,
  }
}

/**
 * The model that a key means by a name; null if there is none, or it may not use it. The answer does not reveal which
 * of the two. The host signs rules after clients have verified the gateway, so here no alias replaces a served model,
 * and none leads out of what the attestation covers.
 */
export function resolveModel(
  { models, aliases }: KeyRules,
  { served, aliased }: OfferedModels,
  name: string,
): string | null {
  const meant = served.has(name) ? name : aliases?.find(alias => alias.name === name && aliased.has(alias.model))?.model
  return meant !== undefined && (models === null || models.includes(meant)) ? meant : null
}

/** Every name that a key may send, in the order of the gateway's models, its own names behind them. */
export function modelNames(rules: KeyRules, offered: OfferedModels): string[] {
  const names = [...offered.served, ...(rules.aliases ?? []).map(alias => alias.name)]
  return [...new Set(names)].filter(name => resolveModel(rules, offered, name) !== null)
}
