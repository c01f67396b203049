// Amounts of budgets: money and tokens together. Pure.

import type { MonthSum } from '../../../store/directory/usage/usage-month.query.ts'
import type { Amounts } from '../types.ts'

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
