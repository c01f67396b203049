// Goal: after failures in a row attempts grow rarer up to a bound; after a success the next failure is the first again.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { backOffMs } from '../../../src/base/work/back-off.ts'
import { BackOff } from '../../../src/base/work/back-off-state.ts'

const range = { minMs: 1_000, maxMs: 300_000 }

test('goal: the delay doubles and ends at its bound, however long it goes wrong', () => {
  const delays = [0, 1, 2, 3, 8, 9, 10, 1000].map(failures => backOffMs(range, failures))
  expect(delays).toEqual([0, 1000, 2000, 4000, 128_000, 256_000, 300_000, 300_000])
})

test('goal: the wait runs by the monotonic clock, and a reset shortens only the next delay', async () => {
  const clock = createManualClock()
  const backOff = new BackOff(range, clock)
  expect(backOff.waitMs()).toBe(Number.NEGATIVE_INFINITY)
  expect([backOff.failed(), backOff.failed()]).toEqual([1_000, 2_000])
  await clock.elapse(500)
  expect([backOff.failures, backOff.waitMs()]).toEqual([2, 1_500])
  backOff.reset()
  expect([backOff.failures, backOff.waitMs()]).toEqual([0, 1_500])
  expect(backOff.failed()).toBe(1_000)
})
