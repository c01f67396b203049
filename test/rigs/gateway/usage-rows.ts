// Rows of the usage ledger for tests of its sums. No effects.

import type { Usage } from '../../../src/store/directory/usage/usage.table.ts'

/**
 * A completed request of key k1 of o1 at noon on 2026-11-22: 10 and 5 tokens of the model `tiny`, at 7 nano-dollars.
 */
export function usageRow(changes: Partial<Usage> & { readonly id: string }): Usage {
  return {
    atMs: Date.parse('2026-11-22T12:00Z'),
    organizationId: 'o1',
    keyPrefix: 'k1',
    instanceId: null,
    model: 'tiny',
    upstream: 'u',
    promptTokens: 10,
    completionTokens: 5,
    costNanoUsd: 7,
    outcome: 'completed',
    tokensSource: 'reported',
    endUser: null,
    tags: null,
    cachedTokens: 0,
    ...changes,
  }
}

/** The sum of so many of them. */
export function usageSum(requests: number) {
  return { requests, promptTokens: 10 * requests, completionTokens: 5 * requests, costNanoUsd: 7 * requests }
}
