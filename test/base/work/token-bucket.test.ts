import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { TokenBucket } from '../../../src/base/work/token-bucket.ts'

// Goal: a full bucket gives one second's worth at once; what is taken beyond that is waited for, to the millisecond.
test('a burst, and the wait after it', () => {
  const clock = createManualClock()
  const bucket = new TokenBucket(100, clock)
  expect(bucket.take(100)).toBe(0)
  expect(bucket.take(1)).toBe(10)
  expect(bucket.take(49)).toBe(500)
  clock.advance(500)
  expect(bucket.take(0)).toBe(0)
  expect(bucket.take(1)).toBe(10)
})

// Goal: an idle bucket never holds more than one second's worth, however long it rests.
test('the cap', () => {
  const clock = createManualClock()
  const bucket = new TokenBucket(100, clock)
  bucket.take(100)
  clock.advance(3_600_000)
  expect(bucket.take(100)).toBe(0)
  expect(bucket.take(100)).toBe(1_000)
})

// Goal: the bucket refills in proportion to the time that passed, also in steps.
test('the refill', () => {
  const clock = createManualClock()
  const bucket = new TokenBucket(100, clock)
  bucket.take(100)
  for (let step = 0; step < 5; step += 1) {
    clock.advance(100)
    expect(bucket.take(10)).toBe(0)
  }
  expect(bucket.take(1)).toBe(10)
})
