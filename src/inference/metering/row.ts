// One request's usage in its two forms: the record in a process, and the row on the wire from a gateway VM to its host.
// Pure.

import type { UsageRow } from '../../contract/vm/enclave.ts'
import type { UsageRecord } from './types.ts'

export function usageRowOf({ caller, tokens, ...record }: UsageRecord): UsageRow {
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
    tokensSource: record.tokensSource,
    outcome: record.outcome,
  }
}

export function usageRecordOf(row: UsageRow): UsageRecord {
  const { promptTokens, completionTokens, organizationId, keyPrefix, instanceId, ...record } = row
  return {
    ...record,
    caller: { organizationId, keyPrefix, instanceId },
    tokens: { prompt: promptTokens, completion: completionTokens },
  }
}
