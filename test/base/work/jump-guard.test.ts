// Deletion by age under a wall clock that is set.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { JumpGuard } from '../../../src/base/work/jump-guard.ts'

const hourMs = 3_600_000
const dayMs = 24 * hourMs

function bench() {
  const clock = createManualClock()
  const told: string[] = []
  const guard = new JumpGuard(clock, { error: message => told.push(message) })
  return { clock, told, guard }
}

// Goal: 40 days forward delete nothing for a day, and nothing at all when they are taken back; it is said once.
test('a clock that is set forward, and back', () => {
  const { clock, told, guard } = bench()
  const rightMs = clock.nowMs()
  expect(guard.mayDelete()).toBe(true)
  clock.set(rightMs + 40 * dayMs)
  for (let round = 0; round < 100; round += 1) {
    expect(guard.mayDelete()).toBe(false)
    clock.advance(10 * 60_000)
  }
  expect(told).toHaveLength(1)
  clock.set(clock.nowMs() - 40 * dayMs)
  expect(guard.mayDelete()).toBe(true)
  clock.set(clock.nowMs() + 40 * dayMs)
  expect([guard.mayDelete(), told.length]).toEqual([false, 2])
})

// Goal: a clock that was wrong and is now right delays deletion by a day, not forever; hours and steps back delay
// nothing.
test('what is believed', () => {
  const { clock, guard } = bench()
  clock.set(clock.nowMs() + 40 * dayMs)
  expect(guard.mayDelete()).toBe(false)
  clock.advance(dayMs - 1)
  expect(guard.mayDelete()).toBe(false)
  clock.advance(1)
  expect(guard.mayDelete()).toBe(true)
  for (const jumpMs of [hourMs, -hourMs, -40 * dayMs]) {
    clock.set(clock.nowMs() + jumpMs)
    expect(guard.mayDelete()).toBe(true)
  }
  clock.advance(40 * dayMs)
  expect(guard.mayDelete()).toBe(true)
})
