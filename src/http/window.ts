// A sliding window of one minute in constant memory: the amount taken in the last 60 seconds. Pure: takes the time.
// An amount counts until the whole second in which it was taken is a minute old, 60 to 61 seconds. So no 60 seconds
// exceed the limit, and the moment at which an amount leaves the window is exact.

import { assert } from '../base/assert.ts'

export type Window = {
  readonly take: (nowMs: number, amount: number) => TakenAt
  /** Gives back at most `amount` of the amount taken at `at`. No effect after that second left the window. */
  readonly giveBack: (nowMs: number, at: TakenAt, amount: number) => void
  readonly total: (nowMs: number) => number
  /** Milliseconds until `amount` fits within `limit`; 0: now. */
  readonly waitMs: (nowMs: number, amount: number, limit: number) => number
  /** Milliseconds until the window is empty. */
  readonly emptyInMs: (nowMs: number) => number
}

/** The second in which an amount was taken. */
export type TakenAt = number

const secondMs = 1_000
/** The current second and the 60 before it. */
const seconds = 61
export const windowMs = seconds * secondMs

export function createWindow(): Window {
  const amounts = new Float64Array(seconds)
  let newest = 0
  let sum = 0

  /** Moves the window to the current second. No effect when the clock stands still or goes back. */
  const advance = (nowMs: number) => {
    const second = Math.floor(nowMs / secondMs)
    if (second <= newest) return
    if (second - newest >= seconds) {
      amounts.fill(0)
      sum = 0
      newest = second
    }
    while (newest < second) {
      newest += 1
      sum -= amounts[newest % seconds] ?? 0
      amounts[newest % seconds] = 0
    }
  }
  const leavesAtMs = (second: number) => (second + seconds) * secondMs

  return {
    take: (nowMs, amount) => {
      assert(amount >= 0, 'no amount is negative')
      advance(nowMs)
      amounts[newest % seconds] = (amounts[newest % seconds] ?? 0) + amount
      sum += amount
      return newest
    },
    giveBack: (nowMs, at, amount) => {
      advance(nowMs)
      if (newest - at >= seconds) return
      const back = Math.min(amount, amounts[at % seconds] ?? 0)
      amounts[at % seconds] = (amounts[at % seconds] ?? 0) - back
      sum -= back
    },
    total: nowMs => {
      advance(nowMs)
      return sum
    },
    waitMs: (nowMs, amount, limit) => {
      assert(amount <= limit, 'no amount exceeds the limit')
      advance(nowMs)
      let left = sum
      if (left + amount <= limit) return 0
      for (let second = Math.max(0, newest - seconds + 1); second <= newest; second += 1) {
        left -= amounts[second % seconds] ?? 0
        if (left + amount <= limit) return leavesAtMs(second) - nowMs
      }
      return leavesAtMs(newest) - nowMs
    },
    emptyInMs: nowMs => {
      advance(nowMs)
      for (let second = newest; second >= 0 && second > newest - seconds; second -= 1) {
        if ((amounts[second % seconds] ?? 0) > 0) return leavesAtMs(second) - nowMs
      }
      return 0
    },
  }
}

export function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1_000))
}
