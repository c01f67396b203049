// Amounts of budgets: money and tokens together. Pure.

import type { MonthSum } from '../../../store/directory/usage/usage-month.query.ts'
import type { Amounts, Spender } from '../types.ts'

export const NO_AMOUNTS: Amounts = { nanoUsd: 0, tokens: 0 }

export function amountsOf({ promptTokens, completionTokens, costNanoUsd }: MonthSum): Amounts {
  return { nanoUsd: costNanoUsd, tokens: promptTokens + completionTokens }
}

export function plus(a: Amounts, b: Amounts): Amounts {
  return { nanoUsd: a.nanoUsd + b.nanoUsd, tokens: a.tokens + b.tokens }
}

export function negative({ nanoUsd, tokens }: Amounts): Amounts {
  return { nanoUsd: -nanoUsd, tokens: -tokens }
}

/** Returns the amounts of a key; with an empty key, those of all keys of the organization. */
export function amountsIn(
  { organizationId, keyPrefix }: Spender,
  all: readonly (Spender & { readonly nanoUsd: number; readonly tokens: number })[],
): Amounts {
  return all
    .filter(item => item.organizationId === organizationId && (keyPrefix === '' || item.keyPrefix === keyPrefix))
    .reduce<Amounts>((sum, { nanoUsd, tokens }) => plus(sum, { nanoUsd, tokens }), NO_AMOUNTS)
}
