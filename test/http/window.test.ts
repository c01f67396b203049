import { expect, test } from 'bun:test'
import { createWindow, wholeSeconds, windowMs } from '../../src/http/window.ts'

const start = 1_000_000_000

// Goal: an amount counts for 60 s at least and 61 s at most: until its whole second is a minute old.
test('when an amount leaves', () => {
  const window = createWindow()
  window.take(start, 5)
  window.take(start + 999, 2)
  window.take(start + 1_000, 1)
  expect(window.total(start + 60_999)).toBe(8)
  expect(window.total(start + 61_000)).toBe(1)
  expect(window.total(start + 61_999)).toBe(1)
  expect(window.total(start + 62_000)).toBe(0)
  expect(windowMs).toBe(61_000)
})

// Goal: the wait ends exactly when enough has left, and is 0 when the amount fits now.
test('how long to wait', () => {
  const window = createWindow()
  window.take(start + 500, 6)
  window.take(start + 2_500, 4)
  expect(window.waitMs(start + 3_000, 2, 12)).toBe(0)
  expect(window.waitMs(start + 3_000, 3, 12)).toBe(58_000)
  expect(window.waitMs(start + 3_000, 9, 12)).toBe(60_000)
  expect(window.waitMs(start + 3_000, 12, 12)).toBe(60_000)
  expect(window.emptyInMs(start + 3_000)).toBe(60_000)
  expect(window.total(start + 63_000)).toBe(0)
  expect(window.emptyInMs(start + 63_000)).toBe(0)
})

// Goal: only what was taken in that second comes back, and nothing once that second has left.
test('what is given back', () => {
  const window = createWindow()
  const at = window.take(start, 5)
  window.take(start + 1_000, 3)
  window.giveBack(start + 1_000, at, 2)
  expect(window.total(start + 1_000)).toBe(6)
  window.giveBack(start + 1_000, at, 100)
  expect(window.total(start + 1_000)).toBe(3)
  const late = createWindow()
  const gone = late.take(start, 5)
  late.take(start + 61_000, 4)
  late.giveBack(start + 61_000, gone, 4)
  expect(late.total(start + 61_000)).toBe(4)
})

// Goal: a long rest empties the window, and a clock that goes back changes nothing that was counted.
test('rests, and a clock that goes back', () => {
  const window = createWindow()
  window.take(start, 5)
  window.take(start - 5_000, 1)
  expect(window.total(start)).toBe(6)
  expect(window.total(start + 3_600_000)).toBe(0)
})

// Goal: each question looks at the time that it is given, not at that of the question before.
test('a question after a rest', () => {
  const taken = (amount: number) => {
    const window = createWindow()
    const at = window.take(start, amount)
    return { window, at }
  }
  expect(taken(6).window.waitMs(start + 60_999, 6, 10)).toBe(1)
  expect(taken(6).window.waitMs(start + 61_000, 6, 10)).toBe(0)
  expect(taken(6).window.emptyInMs(start + 60_999)).toBe(1)
  expect(taken(6).window.emptyInMs(start + 61_000)).toBe(0)
  const { window, at } = taken(6)
  window.giveBack(start + 61_000, at, 6)
  expect(window.total(start + 61_000)).toBe(0)
})

// Goal: after a rest of any length no amount of before counts again, in any second of the minute after it.
test('what is left after a long rest', () => {
  for (const restMs of [61_000, 62_000, 3_600_000]) {
    const window = createWindow()
    for (let second = 0; second < 61; second += 1) window.take(start + second * 1_000, 1)
    const from = start + 60_000 + restMs
    window.take(from, 2)
    expect([restMs, window.total(from)]).toEqual([restMs, 2])
    expect([restMs, window.waitMs(from, 10, 10)]).toEqual([restMs, 61_000])
    for (let second = 1; second < 61; second += 1) expect(window.total(from + second * 1_000)).toBe(2)
    expect(window.total(from + 61_000)).toBe(0)
  }
})

// Goal: the wait for the oldest second of a full window is that second's, not the next one's.
test('the oldest second', () => {
  const window = createWindow()
  window.take(start, 4)
  window.take(start + 1_000, 6)
  expect(window.waitMs(start + 60_000, 4, 10)).toBe(1_000)
  expect(window.waitMs(start + 60_000, 5, 10)).toBe(2_000)
  expect(window.emptyInMs(start + 60_000)).toBe(2_000)
})

// Goal: amounts that could never fit, and negative ones, are errors of the caller.
test('amounts that cannot be', () => {
  expect(() => createWindow().take(start, -1)).toThrow('no amount is negative')
  expect(() => createWindow().waitMs(start, 6, 5)).toThrow('no amount exceeds the limit')
})

test('goal: Retry-After is a whole second, rounded up, and never 0', () => {
  expect([0, 1, 999, 1_000, 1_001, 60_000].map(wholeSeconds)).toEqual([1, 1, 1, 1, 2, 60])
})
