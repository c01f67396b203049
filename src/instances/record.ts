// Rows in their wire format (contract 2.2). Pure. Every record is checked against its schema before it is sent.

import { Value } from '@sinclair/typebox/value'
import { assert } from '../base/assert.ts'
import { iso, isoOrNull } from '../base/clock.ts'
import { egressLimitBytes, InstanceCreated, InstanceRecord } from '../contract/http/instance.ts'
import type { Instance } from '../store/directory/instance.table.ts'

export function toRecord(row: Instance): InstanceRecord {
  const record = {
    ...common(row),
    failure_code: row.failureCode,
    failure_message: row.failureMessage,
    terminated_reason: row.terminatedReason,
    created_at: iso(row.createdAtMs),
    ready_at: isoOrNull(row.readyAtMs),
    terminated_at: isoOrNull(row.terminatedAtMs),
  }
  assert(Value.Check(InstanceRecord, record), `instance ${row.id} is stored as the contract shows it`)
  return record
}

export function toCreated(row: Instance): InstanceCreated {
  const created = { ...common(row), created_at: iso(row.createdAtMs) }
  assert(Value.Check(InstanceCreated, created), `instance ${row.id} is stored as the contract shows it`)
  return created
}

function common(row: Instance) {
  return {
    name: row.name,
    status: row.status,
    agent: row.agent,
    hostname: row.hostname,
    public_key: row.publicKey,
    inference_mode: row.inferenceMode,
    inference_model: row.inferenceModel,
    egress_limit_bytes: egressLimitBytes,
  }
}
