// Goal: a build's record shows what its row has, and a result only while there is one.

import { expect, test } from 'bun:test'
import { proofOf, toBuildRecord } from '../../src/builds/record.ts'
import type { Build } from '../../src/store/directory/build.table.ts'
import { buildId, buildRow } from '../rigs/build/build-row.ts'

const context = { baseUrl: 'https://builds.example', commands: ({ id }: Build, url: string) => [`get ${url} ${id}`] }
const recordOf = (changes: Partial<Build>) => toBuildRecord(buildRow(changes), context)
const proof = {
  dispatch: { statement: '11'.repeat(32), keys: '22'.repeat(32), source: '33'.repeat(32) },
  measurement: '44'.repeat(48),
  simulated: true,
  provenance: null,
}
const ended = {
  state: 'ok',
  resultBytes: 9,
  resultSha256: '55'.repeat(32),
  provenanceSha256: '66'.repeat(32),
  startedAtMs: 2_000,
  finishedAtMs: 3_000,
} as const

test('goal: a build that waits has neither result, proof nor commands', () => {
  expect(recordOf({ toolchain: 'cargo', projectDir: 'a', reproduce: true })).toEqual({
    job_id: buildId,
    state: 'queued',
    nonce: '00ff',
    source: { kind: 'archive', name: 'demo.tar.gz', size_bytes: 7, sha256: 'ab'.repeat(32) },
    project_dir: 'a',
    toolchain: 'cargo',
    options: {},
    reproduce: true,
    vm_id: null,
    attested: null,
    result: null,
    commands: [],
    error_type: null,
    error: null,
    created_at: '1970-01-01T00:00:01.000Z',
    started_at: null,
    finished_at: null,
  })
})

test('goal: a result has its address and commands until it is removed, its digests for good', () => {
  const result = { size_bytes: 9, sha256: '55'.repeat(32), provenance_sha256: '66'.repeat(32) }
  const kept = recordOf({ ...ended, evidence: JSON.stringify(proof) })
  expect(kept.result).toEqual({ ...result, url: `https://builds.example/build/${buildId}/result` })
  expect(kept.commands).toEqual([`get https://builds.example ${buildId}`])
  expect(kept.attested).toEqual({ measurement: '44'.repeat(48), source_tree: '33'.repeat(32), simulated: true })
  expect([kept.started_at, kept.finished_at]).toEqual(['1970-01-01T00:00:02.000Z', '1970-01-01T00:00:03.000Z'])
  const removed = recordOf({ ...ended, removedAtMs: 4_000 })
  expect([removed.result, removed.commands]).toEqual([{ ...result, url: null }, []])
})

test('goal: what is not whole, or did not end well, is no result', () => {
  for (const part of ['resultBytes', 'resultSha256', 'provenanceSha256'] as const) {
    expect([part, recordOf({ ...ended, [part]: null }).result]).toEqual([part, null])
  }
  const failed = recordOf({ ...ended, state: 'failed', errorType: 'build_failed', error: 'It broke.' })
  expect([failed.result, failed.commands]).toEqual([null, []])
  expect([failed.error_type, failed.error]).toEqual(['build_failed', 'It broke.'])
})

test('goal: a repository is shown as such, and a row that fits no record is not shown', () => {
  const git = recordOf({ sourceKind: 'git', repoUrl: 'https://git.example/a', repoRef: null })
  expect(git.source).toEqual({ kind: 'git', url: 'https://git.example/a', ref: null })
  expect(() => recordOf({ sourceSha256: 'short' })).toThrow('is stored as the contract shows it')
  expect([proofOf({ evidence: null }), proofOf({ evidence: '{"a":1}' }) as unknown]).toEqual([null, { a: 1 }])
})
