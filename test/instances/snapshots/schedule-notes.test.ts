// Goal: an attempt by schedule is due 15 minutes after the last one; each attempt that finds no room doubles the pause,
// up to four hours, and one that has room ends that.

import { expect, test } from 'bun:test'
import { ScheduleNotes } from '../../../src/instances/snapshots/schedule-notes.ts'

const [minute, id] = [60_000, 'a']

test('goal: pauses between attempts', () => {
  const notes = new ScheduleNotes()
  expect([notes.has(id), notes.isDue(id, 0), notes.has(id)]).toEqual([false, true, true])
  let nowMs = 0
  /** Minutes from an attempt with this end to when the next one is due. */
  const pauseAfter = (hadRoom: boolean) => {
    notes.began(id, nowMs)
    notes.ended(id, { hadRoom })
    const beganMs = nowMs
    while (!notes.isDue(id, nowMs)) nowMs += minute
    return (nowMs - beganMs) / minute
  }
  expect([true, false, false, false, false, false, true].map(pauseAfter)).toEqual([15, 30, 60, 120, 240, 240, 15])
  // Others are not concerned, and what is forgotten begins again.
  notes.began(id, nowMs)
  expect([notes.isDue('b', nowMs), notes.isDue(id, nowMs)]).toEqual([true, false])
  notes.forget(id)
  expect([notes.has(id), notes.isDue(id, nowMs)]).toEqual([false, true])
})
