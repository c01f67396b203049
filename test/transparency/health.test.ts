// Goal: whoever runs the log sees in time that a witness fails or is silent, that entries wait, and that nothing can be
// written; what clients refuse because of it is severe, what costs nobody anything yet is not.

import { expect, test } from 'bun:test'
import { openLogBench } from '../../scripts/rigs/transparency.ts'
import type { LogFact } from '../../src/contract/http/log-entry.ts'
import { type LogState, logProblems, logState } from '../../src/transparency/health.ts'
import { createLogMetrics } from '../../src/transparency/metrics.ts'
import { cosign } from '../rigs/log/log-server.ts'
import { newSigner } from '../rigs/log/log-signer.ts'

const minute = 60_000
const hour = 60 * minute
const day = 24 * hour
const nowMs = Date.UTC(2026, 10, 26)
const asked = { name: 'witness.example/w', isAsked: true, cosignedMs: nowMs, failingSinceMs: null, problem: null }
const byHand = { ...asked, name: 'hand.example/w', isAsked: false }
const good: LogState = {
  size: 9,
  shown: 9,
  lastEntryMs: nowMs - hour,
  waitingSinceMs: null,
  failure: null,
  witnesses: [asked, byHand],
}

/** Problems of a state that differs from a good one in this: whether it is severe, whose it is, and its words. */
const of = (changes: Partial<LogState>) =>
  logProblems({ ...good, ...changes }, nowMs).map(({ severe, witness, detail }) => [severe, witness, detail])

test('goal: a log that is written, shown and cosigned has no problem, nor has one without witnesses', () => {
  expect([of({}), of({ witnesses: [] }), of({ size: 0, shown: 0, lastEntryMs: null, witnesses: [] })]).toEqual([
    [],
    [],
    [],
  ])
})

// Goal: each trouble is found alone, with its owner and its remedy.
test.each<readonly [string, Partial<LogState>, readonly unknown[]]>([
  ['nothing can be written', { failure: { atMs: nowMs - minute, reason: 'ENOSPC' } }, [true, null, 'ENOSPC']],
  [
    'entries wait',
    { shown: 7, waitingSinceMs: nowMs - 11 * minute },
    [true, null, '2 entries wait for a witness since'],
  ],
  [
    'entries wait for a person',
    { shown: 7, waitingSinceMs: nowMs - 25 * hour, witnesses: [byHand] },
    [true, null, '2 entries wait'],
  ],
  [
    'a witness fails',
    { witnesses: [{ ...asked, failingSinceMs: nowMs - 11 * minute, problem: 'it answers 500' }, byHand] },
    [false, asked.name, 'it answers 500'],
  ],
  [
    'a witness is silent',
    { witnesses: [{ ...asked, cosignedMs: nowMs - 37 * hour }, byHand] },
    [false, asked.name, 'last'],
  ],
  [
    'a person is silent',
    { witnesses: [asked, { ...byHand, cosignedMs: nowMs - 6 * day }] },
    [false, byHand.name, 'last'],
  ],
  ['a person never came', { witnesses: [asked, { ...byHand, cosignedMs: null }] }, [false, byHand.name, 'nothing yet']],
])('goal: %s', (_, changes, [severe, witness, words]) => {
  expect(of(changes)).toEqual([[severe, witness, expect.stringContaining(String(words))]])
  for (const { remedy } of logProblems({ ...good, ...changes }, nowMs)) expect(remedy.length).toBeGreaterThan(20)
})

test('goal: when the last of all witnesses is silent for a week, clients refuse the tree', () => {
  const silent = [asked, byHand].map(witness => ({ ...witness, cosignedMs: nowMs - 8 * day }))
  expect(of({ witnesses: silent })[0]).toEqual([true, null, expect.stringContaining('no witness has cosigned since')])
  expect(of({ witnesses: [asked, ...silent.slice(1)] }).map(([severe]) => severe)).toEqual([false])
})

test('goal: what passes by itself is no problem: a moment of waiting, a failure just now, a first question', () => {
  const soon = { failingSinceMs: nowMs - minute, problem: 'it answers 500' }
  expect(of({ shown: 8, waitingSinceMs: nowMs - minute })).toEqual([])
  expect(of({ witnesses: [{ ...asked, ...soon }] })).toEqual([])
  expect(of({ size: 1, shown: 0, waitingSinceMs: nowMs, witnesses: [{ ...asked, cosignedMs: null }] })).toEqual([])
  expect(of({ shown: 7, waitingSinceMs: nowMs - hour, witnesses: [byHand] })).toEqual([])
})

test('goal: state and metrics are those of the log: its newest entry, what waits, who cosigned when', async () => {
  const witness = newSigner('witness.example/w', 'cosignature')
  let atMs = nowMs
  using bench = openLogBench({ witnesses: [witness.key], clock: { nowMs: () => atMs } })
  const policy = (n: number): LogFact => ({ kind: 'verifier-policy', sha256: n.toString(16).padStart(64, '0') })
  const watched = {
    log: bench.log,
    named: [{ key: witness.key, url: 'https://witness.example' }],
    witnesses: { problem: () => 'it answers 500', failingSinceMs: () => nowMs },
  }
  expect(logState(watched)).toMatchObject({ size: 0, shown: 0, lastEntryMs: null, waitingSinceMs: null })
  bench.log.append(policy(1))
  await cosign(bench.log, witness, atMs)
  atMs += minute
  bench.log.append(policy(2))
  atMs += minute
  bench.log.append(policy(3))
  expect(logState(watched)).toMatchObject({
    ...{ size: 3, shown: 1, lastEntryMs: nowMs + 2 * minute, waitingSinceMs: nowMs + minute, failure: null },
    witnesses: [{ name: witness.key.name, isAsked: true, cosignedMs: nowMs, failingSinceMs: nowMs }],
  })
  const lines = createLogMetrics(watched)
    .render()
    .split('\n')
    .filter(line => !line.startsWith('#') && line !== '')
  expect(lines).toEqual([
    'strongroom_log_entries 3',
    'strongroom_log_entries_waiting 2',
    `strongroom_log_last_entry_timestamp_seconds ${nowMs / 1000 + 120}`,
    `strongroom_log_waiting_since_timestamp_seconds ${nowMs / 1000 + 60}`,
    'strongroom_log_writable 1',
    `strongroom_log_witness_cosigned_timestamp_seconds{witness="witness.example/w"} ${nowMs / 1000}`,
    'strongroom_log_witness_failing{witness="witness.example/w"} 1',
  ])
})
