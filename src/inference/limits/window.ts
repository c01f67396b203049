// A sliding minute in constant memory: how much was taken within the last 60 seconds. Pure: times come in.
// Time is cut into seconds; an amount counts until its whole second is a minute old, which is 60 to 61 seconds. So within any
// 60 seconds no more than the limit is ever taken, and the time at which room comes back is known exactly.

import { assert } from '../../base/assert.ts'

export type Window = {
  readonly take: (nowMs: number, amount: number) => TakenAt
  /** Takes back at most `amount` of what was taken at `at`; a second that has left the window gives nothing back. */
  readonly giveBack: (nowMs: number, at: TakenAt, amount: number) => void
  readonly total: (nowMs: number) => number
  /** Milliseconds until `amount` more stays within `limit`; 0: now. */
  readonly waitMs: (nowMs: number, amount: number, limit: number) => number
  /** Milliseconds until nothing is left in the window. */
  readonly emptyInMs: (nowMs: number) => number
}

/** The second that an amount was taken in. */
export type TakenAt = number

const secondMs = 1_000
/** The present second and the 60 before it. */
const seconds = 61
export const windowMs = seconds * secondMs

export function createWindow(): Window {
  const amounts = new Float64Array(seconds)
  let newest = 0
  let sum = 0

  /** Brings the window up to the present; a clock that stands still or runs back moves nothing. */
  const move = (nowMs: number) => {
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
      assert(amount >= 0, 'nothing negative is taken')
      move(nowMs)
      amounts[newest % seconds] = (amounts[newest % seconds] ?? 0) + amount
      sum += amount
      return newest
    },
    giveBack: (nowMs, at, amount) => {
      move(nowMs)
      if (newest - at >= seconds) return
      const back = Math.min(amount, amounts[at % seconds] ?? 0)
      amounts[at % seconds] = (amounts[at % seconds] ?? 0) - back
      sum -= back
    },
    total: nowMs => {
      move(nowMs)
      return sum
    },
    waitMs: (nowMs, amount, limit) => {
      assert(amount <= limit, 'what is waited for can come')
      move(nowMs)
      let left = sum
      if (left + amount <= limit) return 0
      for (let second = Math.max(0, newest - seconds + 1); second <= newest; second += 1) {
        left -= amounts[second % seconds] ?? 0
        if (left + amount <= limit) return leavesAtMs(second) - nowMs
      }
      return leavesAtMs(newest) - nowMs
    },
    emptyInMs: nowMs => {
      move(nowMs)
      for (let second = newest; second >= 0 && second > newest - seconds; second -= 1) {
        if ((amounts[second % seconds] ?? 0) > 0) return leavesAtMs(second) - nowMs
      }
      return 0
    },
  }
}
