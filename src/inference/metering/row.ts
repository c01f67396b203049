// The row of one request's usage, on the wire from a gateway VM to its host. Pure.

import type { UsageRow } from '../../contract/vm/enclave-responses.ts'
import type { Tokens } from '../types.ts'
import { NO_LABELS } from './labels.ts'
import type { UsageRecord } from './types.ts'

export function usageRowOf({ caller, tokens, labels = NO_LABELS, ...record }: UsageRecord): UsageRow {
  const { endUser, tags } = labels
  return {
    id: record.id,
    atMs: record.atMs,
    organizationId: caller.organizationId,
    keyPrefix: caller.keyPrefix,
    instanceId: caller.instanceId,
    model: record.model,
    upstream: record.upstream,
    promptTokens: tokens.prompt,
    completionTokens: tokens.completion,
    ...(tokens.cached === undefined ? {} : { cachedTokens: tokens.cached }),
    tokensSource: record.tokensSource,
    outcome: record.outcome,
    ...(endUser === null ? {} : { endUser }),
    ...(tags === null ? {} : { tags }),
  }
}

export function tokensOfRow({ promptTokens, completionTokens, cachedTokens }: UsageRow): Tokens {
  const tokens = { prompt: promptTokens, completion: completionTokens }
  return cachedTokens === undefined ? tokens : { ...tokens, cached: cachedTokens }
}
