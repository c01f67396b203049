// Goal: an idle end waits a day for room, however long its attempts take and whatever other instances do; use alone
// begins the day anew.

import { expect, test } from 'bun:test'
import { LimitedFault } from '../../../src/http/limited.ts'
import { IdleEndNotes } from '../../../src/instances/snapshots/idle-end-notes.ts'
import { RoomFault } from '../../../src/instances/snapshots/refusals.ts'

const noRoom = new RoomFault('conflict', 'no room')
const limited = new LimitedFault('others are under way', 1_000)

function begin() {
  let minute = 0
  const nowMs = () => minute * 60_000
  const notes = new IdleEndNotes({ nowMs, monotonicMs: nowMs })
  const pass = (minutes: number) => {
    minute += minutes
  }
  /** Minutes of an idle instance until its end; the host polls each minute, and not during an attempt. */
  const untilEnd = (attempt: (count: number) => { readonly minutes: number; readonly failure: Error }) => {
    const began = minute
    for (let count = 0; minute - began < 10 * 24 * 60; pass(1)) {
      if (!notes.isDue('idle')) continue
      const { minutes, failure } = attempt(count)
      count += 1
      pass(minutes)
      // Its prune must not end the wait of the instance whose attempt has just taken hours.
      notes.note('other', noRoom)
      if (notes.note('idle', failure) === 0) return minute - began
    }
    return null
  }
  return { notes, pass, untilEnd }
}

test('goal: attempts of 20 minutes or 3 hours do not begin the day anew', () => {
  for (const minutes of [20, 180]) {
    const end = begin().untilEnd(() => ({ minutes, failure: noRoom }))
    // From the end of the first attempt; the last one begins within the day.
    expect(end).toBeGreaterThanOrEqual(24 * 60)
    expect(end).toBeLessThanOrEqual(24 * 60 + 2 * minutes + 15)
  }
})

test('goal: an hour in which others prevent each attempt does not begin the day anew, and such hours end with it', () => {
  const failures = (count: number) => ({ minutes: 0, failure: count > 5 && count < 66 ? limited : noRoom })
  expect(begin().untilEnd(failures)).toBe(24 * 60)
  const { notes, untilEnd } = begin()
  expect(untilEnd(() => ({ minutes: 0, failure: limited }))).toBe(24 * 60)
  // The other one ends so, too.
  expect(notes.failed?.count).toBe(2)
})

test('goal: others that prevent an attempt cause no pause, and use begins the day anew', () => {
  const { notes, pass, untilEnd } = begin()
  notes.note('idle', limited)
  pass(1)
  expect([notes.isDue('idle'), notes.note('idle', noRoom)]).toEqual([true, (24 * 60 - 1) * 60_000])
  pass(1)
  expect(notes.isDue('idle')).toBe(false)
  notes.used('idle')
  expect(untilEnd(() => ({ minutes: 0, failure: noRoom }))).toBe(24 * 60)
})
