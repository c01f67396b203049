// Goal: whatever a VM says is due, the snapshots that its owner took stay but for the oldest one; a command replaces
// the oldest of all.

import { expect, test } from 'bun:test'
import { replacedBy, type SnapshotCause } from '../../../src/instances/snapshots/replaced.plan.ts'

/** `c`: a command took it; `s`: none did. The oldest first. Returns what stays with the new one. */
function staying(cause: SnapshotCause, kept: string, keptMax: number): string | null {
  const records = [...kept].map((letter, number) =>
    letter === 's' ? { number, isUnattended: true as const } : { number },
  )
  const replaced = replacedBy(cause, records, keptMax)
  if (replaced === null) return null
  const left = records.filter(record => !replaced.includes(record))
  return left.map(({ number }) => `${kept[number]}${number}`).join(' ')
}

// Goal: a new snapshot replaces only what its cause may.
test.each([
  ['command', 'ccc', 'c1 c2'],
  ['command', 'css', 's1 s2'],
  ['command', 'c', 'c0'],
  ['schedule', '', ''],
  ['schedule', 'cc', 'c0 c1'],
  ['schedule', 'ccc', 'c1 c2'],
  ['schedule', 'ccs', 'c0 c1'],
  ['schedule', 'scs', 'c1 s2'],
  ['schedule', 'sss', 's1 s2'],
  ['idle_end', 'ccc', 'c1 c2'],
  ['idle_end', 'csc', 'c0 c2'],
  // After the operator has lowered the number.
  ['schedule', 'ccccc', 'c3 c4'],
] as const)('goal: of 3, a %s leaves of %s only %s', (cause, kept, left) => {
  expect(staying(cause, kept, 3)).toBe(left)
})

test('goal: however many a VM wants, the newest two of the owner stay of 3', () => {
  for (const cause of ['schedule', 'idle_end'] as const) {
    let kept = 'ccc'
    for (let count = 0; count < 10; count += 1) {
      const left = staying(cause, kept, 3) ?? 'refused'
      kept = `${left.replaceAll(/[\d ]/g, '')}s`
    }
    expect(kept).toBe('ccs')
  }
})

test('goal: of 1, a schedule leaves the one of a command; the end of the instance replaces it', () => {
  expect(staying('schedule', 'c', 1)).toBeNull()
  expect(staying('schedule', 's', 1)).toBe('')
  expect(staying('idle_end', 'c', 1)).toBe('')
})
