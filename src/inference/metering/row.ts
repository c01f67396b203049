// One request's usage in two forms: the record in a process, and the row on the wire from a gateway VM to its host.
// Pure.

import type { UsageRow } from '../../contract/vm/enclave.ts'
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

export function usageRecordOf(row: UsageRow): UsageRecord {
  const {
    promptTokens: _,
    completionTokens: _2,
    cachedTokens: _3,
    organizationId,
    keyPrefix,
    instanceId,
    endUser,
    tags,
    ...record
  } = row
  const labels =
    endUser === undefined && tags === undefined ? {} : { labels: { endUser: endUser ?? null, tags: tags ?? null } }
  return {
    ...record,
    caller: { organizationId, keyPrefix, instanceId },
    tokens: tokensOfRow(row),
    ...labels,
  }
}

export function tokensOfRow({ promptTokens, completionTokens, cachedTokens }: UsageRow): Tokens {
  const tokens = { prompt: promptTokens, completion: completionTokens }
  return cachedTokens === undefined ? tokens : { ...tokens, cached: cachedTokens }
}
