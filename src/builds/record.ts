// Build rows in their wire format (contract 2.5). Pure. Each record is checked against its schema before it is sent.

import { Value } from '@sinclair/typebox/value'
import { assert } from '../base/assert.ts'
import { iso, isoOrNull } from '../base/clock.ts'
import { BuildRecord } from '../contract/http/build-api.ts'
import { fieldsOfOptions } from '../contract/http/option-words.ts'
import type { Build } from '../store/directory/build.table.ts'
import type { BuildProof } from './evidence.verify.ts'

export type RecordContext = {
  /** Base address of service C for the client, without a trailing slash. */
  readonly baseUrl: string
  /** Returns how to fetch and verify a result, one command per line. */
  readonly commands: (build: Build, baseUrl: string) => readonly string[]
}

export function toBuildRecord(row: Build, { baseUrl, commands }: RecordContext): BuildRecord {
  const record: BuildRecord = {
    job_id: row.id,
    state: row.state,
    nonce: row.nonce,
    source: sourceOf(row),
    project_dir: row.projectDir,
    toolchain: row.toolchain,
    options: fieldsOfOptions(row.options),
    reproduce: row.reproduce,
    vm_id: row.vmId,
    attested: attestedOf(row),
    result: resultOf(row, baseUrl),
    commands: row.state === 'ok' && row.removedAtMs === null ? [...commands(row, baseUrl)] : [],
    error_type: row.errorType,
    error: row.error,
    created_at: iso(row.createdAtMs),
    started_at: isoOrNull(row.startedAtMs),
    finished_at: isoOrNull(row.finishedAtMs),
  }
  assert(Value.Check(BuildRecord, record), `build ${row.id} is stored as the contract shows it`)
  return record
}

export function proofOf({ evidence }: Pick<Build, 'evidence'>): BuildProof | null {
  // Only this program writes it, from verified data.
  return evidence === null ? null : (JSON.parse(evidence) as BuildProof)
}

function sourceOf(row: Build): BuildRecord['source'] {
  if (row.sourceKind === 'git') return { kind: 'git', url: row.repoUrl ?? '', ref: row.repoRef }
  return { kind: 'archive', name: row.sourceName, size_bytes: row.sourceBytes ?? 0, sha256: row.sourceSha256 ?? '' }
}

function attestedOf(row: Build): BuildRecord['attested'] {
  const proof = proofOf(row)
  if (proof === null) return null
  return { measurement: proof.measurement, source_tree: proof.dispatch.source, simulated: proof.simulated }
}

function resultOf(row: Build, baseUrl: string): BuildRecord['result'] {
  const { resultBytes, resultSha256, provenanceSha256 } = row
  if (row.state !== 'ok' || resultBytes === null || resultSha256 === null || provenanceSha256 === null) return null
  return {
    size_bytes: resultBytes,
    sha256: resultSha256,
    provenance_sha256: provenanceSha256,
    url: row.removedAtMs === null ? `${baseUrl}/build/${row.id}/result` : null,
  }
}
