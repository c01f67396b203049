import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { RATE_LIMITS, RateGate } from '../../../src/host/kds/rate.ts'

const never = new AbortController().signal

// Goal: two requests for a VCEK are 10 s apart; other documents do not wait for them.
test('the interval of VCEKs', async () => {
  const clock = createManualClock()
  const gate = new RateGate(clock, { waitMsMax: 0 })
  expect(await gate.enter(true, never)).toBeNull()
  expect(await gate.enter(true, never)).toBe(10_000)
  expect(await gate.enter(false, never)).toBeNull()
  clock.advance(9_999)
  expect(await gate.enter(true, never)).toBe(1)
  clock.advance(1)
  expect(await gate.enter(true, never)).toBeNull()
})

// Goal: a 429 stops every request for as long as it says, at most an hour, and 10 s without a Retry-After.
test('a block', async () => {
  const clock = createManualClock()
  const gate = new RateGate(clock, { waitMsMax: 0 })
  expect(gate.block(null)).toBe(10_000)
  expect(await gate.enter(false, never)).toBe(10_000)
  expect(gate.block(86_400_000)).toBe(3_600_000)
  expect(await gate.enter(false, never)).toBe(3_600_000)
  expect(gate.block(1_000)).toBe(1_000)
  expect(await gate.enter(false, never)).toBe(3_600_000)
})

// Goal: a request waits for its turn up to the longest wait, and only so many wait at once.
test('who waits', async () => {
  const clock = createManualClock()
  const gate = new RateGate(clock, { waitersMax: 2 })
  expect(await gate.enter(true, never)).toBeNull()
  const waiting = [gate.enter(true, never), gate.enter(true, never)]
  expect(await gate.enter(true, never)).toBe(10_000)
  clock.advance(10_000)
  expect(await waiting[0]).toBeNull()
  clock.advance(10_000)
  expect(await waiting[1]).toBeNull()
  gate.block(60_001)
  expect(await gate.enter(false, never)).toBe(60_001)
})

// Goal: a request that has had its turn leaves its place, and leaves one place alone.
test('places after a turn', async () => {
  const clock = createManualClock()
  const gate = new RateGate(clock, { waitersMax: 2 })
  for (let round = 0; round < 3; round += 1) {
    gate.block(5_000)
    const waiting = [gate.enter(false, never), gate.enter(false, never)]
    expect(await gate.enter(false, never)).toBe(5_000)
    clock.advance(5_000)
    expect(await Promise.all(waiting)).toEqual([null, null])
  }
})

// Goal: the longest wait is still waited for, and one millisecond more is not.
test('the longest wait', async () => {
  const clock = createManualClock()
  const gate = new RateGate(clock, { waitMsMax: 10_000 })
  gate.block(10_000)
  const waiting = gate.enter(false, never)
  gate.block(10_001)
  expect(await gate.enter(false, never)).toBe(10_001)
  clock.advance(10_000)
  expect(await waiting).toBe(1)
})

// Goal: a request whose signal is aborted sends nothing and leaves its place in the queue.
test('an abort', async () => {
  const clock = createManualClock()
  const gate = new RateGate(clock, { waitersMax: 1 })
  gate.block(5_000)
  const controller = new AbortController()
  const waiting = gate.enter(false, controller.signal)
  controller.abort()
  expect(await waiting).toBe(5_000)
  const next = gate.enter(false, never)
  clock.advance(5_000)
  expect(await next).toBeNull()
})

test('goal: the limits are those that AMD documents for its key server, with an hour as the longest block', () => {
  expect(RATE_LIMITS).toEqual({
    vcekIntervalMs: 10_000,
    waitMsMax: 60_000,
    waitersMax: 16,
    blockMs: 10_000,
    blockMsMax: 3_600_000,
  })
})
