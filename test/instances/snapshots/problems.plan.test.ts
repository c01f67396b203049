// Goal: what keeps snapshots from being taken stands in the list of problems, with its cause and its end.

import { expect, test } from 'bun:test'
import { type SnapshotFacts, snapshotProblems } from '../../../src/instances/snapshots/problems.plan.ts'

const gib = 2 ** 30
const dayMs = 86_400_000
const good: SnapshotFacts = {
  bytes: 94 * gib,
  bytesMax: 100 * gib,
  freeBytes: 10 * gib,
  freeBytesMin: 10 * gib,
  failedEnds: null,
  unreadable: [],
  listenProblem: null,
}
const failedEnds = { count: 2, sinceMs: 5, lastMs: 9, reason: 'no room' }

// Goal: each fact is the problem that it should be, alone, as long as it should be.
test.each<[string, Partial<SnapshotFacts>, number, string[]]>([
  ['a good host', {}, 10, []],
  ['a disk below its minimum', { freeBytes: 10 * gib - 1 }, 10, ['room: no snapshot is taken']],
  ['a disk that cannot be read', { freeBytes: null }, 10, []],
  ['95 % of all', { bytes: 95 * gib }, 10, ['room: 95.0 of 100.0 GiB']],
  ['ends without one', { failedEnds }, 10, ['ends: 2 instances', 'ends: no room']],
  ['such ends a day ago', { failedEnds }, 9 + dayMs, ['ends: no room']],
  ['such ends before', { failedEnds }, 10 + dayMs, []],
  ['an unreadable record', { unreadable: ['5b3f'] }, 10, ['unreadable: of 5b3f']],
  ['a port in use', { listenProblem: 'EADDRINUSE' }, 10, ['port: EADDRINUSE']],
])('goal: %s', (_, change, nowMs, expected) => {
  const problems = snapshotProblems({ ...good, ...change }, nowMs)
  const texts = problems.map(({ subject, detail }) => `${subject}: ${detail}`)
  for (const text of expected) {
    const [subject = '', words = ''] = text.split(': ')
    expect(texts).toEqual([expect.stringContaining(words)])
    expect(texts[0]).toStartWith(`${subject}: `)
  }
  expect(problems.length).toBe(expected.length === 0 ? 0 : 1)
  for (const { name, severity } of problems) expect([name, severity]).toEqual(['snapshots', 'warning'])
  expect(problems[0]?.sinceMs ?? null).toBe(change.failedEnds !== undefined && expected.length > 0 ? 5 : null)
})

test('goal: the remedy of missing room is that of its cause, and names no field that changes nothing', () => {
  const remedyOf = (change: Partial<SnapshotFacts>) => snapshotProblems({ ...good, ...change }, 10)[0]?.remedy ?? ''
  const disk = remedyOf({ freeBytes: 2 * gib })
  expect(disk).toStartWith('free space on the disk of the state directory until 10.0 GiB are free, or lower ')
  expect(disk).toContain('snapshots.gib_free_min')
  expect(disk).not.toContain('gib_max')
  // The problem disk of the same message has this unit.
  expect(snapshotProblems({ ...good, freeBytes: 2 ** 26 }, 10)[0]?.detail).toContain(': 64 MiB are free')
  const scarce = remedyOf({ freeBytes: 610 * 2 ** 20 })
  expect(scarce).toContain('until 10.0 GiB are free (the problem disk ends earlier, once 1024 MiB are free)')
  // A lower limit would let snapshots use up the disk.
  expect(scarce).not.toContain('lower')
  expect(remedyOf({ freeBytes: 1.98 * gib })).toContain('gib_free_min to at most 1.9 and restart')
  const all = remedyOf({ bytes: 95 * gib })
  expect(all).toContain('raise snapshots.gib_max')
  expect(all).not.toMatch(/gib_free_min|on the disk/)
  // Raising the sum would free nothing while the disk is short as well.
  expect(remedyOf({ freeBytes: 2 * gib, bytes: 95 * gib })).toBe(disk)
})
