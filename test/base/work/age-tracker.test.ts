// Ages over a manual clock whose wall clock is set.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { AgeTracker } from '../../../src/base/work/age-tracker.ts'

const hourMs = 3_600_000

// Goal: a jump of an hour or of 40 days, either way, changes no age; the record counts at the first look.
test('a clock that is set', () => {
  for (const jumpMs of [hourMs, -hourMs, 960 * hourMs, -960 * hourMs]) {
    const clock = createManualClock()
    const ages = new AgeTracker(clock)
    const sinceMs = clock.nowMs() - 5_000
    expect(ages.ageMs('a', sinceMs)).toBe(5_000)
    clock.set(clock.nowMs() + jumpMs)
    clock.advance(1_000)
    expect(ages.ageMs('a', sinceMs)).toBe(6_000)
    // Something that begins after the jump begins now.
    expect(ages.ageMs('b', clock.nowMs())).toBe(0)
    clock.advance(1_000)
    expect([ages.ageMs('a', sinceMs), ages.ageMs('b', clock.nowMs() - 1_000)]).toEqual([7_000, 1_000])
  }
})

// Goal: a thing that begins anew is young again, one of the future has no age, and what is gone is forgotten.
test('another beginning', () => {
  const clock = createManualClock()
  const ages = new AgeTracker(clock)
  const sinceMs = clock.nowMs() - hourMs
  expect([ages.ageMs('a', sinceMs), ages.ageMs('a', clock.nowMs())]).toEqual([hourMs, 0])
  expect(ages.ageMs('b', clock.nowMs() + hourMs)).toBe(0)
  clock.advance(10)
  ages.keepOnly(['b'])
  expect([ages.ageMs('a', clock.nowMs() - 3), ages.ageMs('b', clock.nowMs() - 10 + hourMs)]).toEqual([3, 10])
})
