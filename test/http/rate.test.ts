import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { LimitedFault } from '../../src/http/limited.ts'
import { createRequestRate } from '../../src/http/rate.ts'

function refusal(take: () => void): LimitedFault {
  try {
    take()
  } catch (error) {
    if (error instanceof LimitedFault) return error
    throw error
  }
  throw new Error('the request was admitted')
}

// Goal: a key may send a minute's requests at once, and then one each time that a request's share of a minute passed.
test('a burst, and the refill', () => {
  const clock = createManualClock()
  const rate = createRequestRate({ clock, requestsPerMinute: 6 })
  for (let count = 0; count < 6; count += 1) rate.take('a')
  expect(refusal(() => rate.take('a')).message).toBe(
    'This key may send 6 requests per minute; wait for the time in Retry-After.',
  )
  clock.advance(9_999)
  refusal(() => rate.take('a'))
  clock.advance(1)
  rate.take('a')
  refusal(() => rate.take('a'))
})

// Goal: Retry-After names the time at which the next request is admitted, not an earlier and not a much later one.
test('the wait that is named', () => {
  const clock = createManualClock()
  const rate = createRequestRate({ clock, requestsPerMinute: 6, what: 'creates' })
  for (let count = 0; count < 6; count += 1) rate.take('a')
  clock.advance(4_000)
  const fault = refusal(() => rate.take('a'))
  expect(fault.message).toContain('6 creates per minute')
  expect(fault.retryAfterSeconds).toBe(6)
})

// Goal: a key that rests for hours has the burst of one minute, not more.
test('the cap', () => {
  const clock = createManualClock()
  const rate = createRequestRate({ clock, requestsPerMinute: 6 })
  rate.take('a')
  clock.advance(50_000)
  for (let count = 0; count < 6; count += 1) rate.take('a')
  refusal(() => rate.take('a'))
})

// Goal: one key's requests take nothing from another key, and buckets that are full again are dropped.
test('keys by themselves, and memory', () => {
  const clock = createManualClock()
  const rate = createRequestRate({ clock, requestsPerMinute: 1 })
  for (const key of ['a', 'b', 'c']) rate.take(key)
  expect(rate.size()).toBe(3)
  clock.advance(59_999)
  rate.take('d')
  expect(rate.size()).toBe(4)
  clock.advance(1)
  rate.take('e')
  expect(rate.size()).toBe(2)
})
