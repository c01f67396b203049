// Deadlines that share their timers.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { createDeadlines } from '../../src/base/deadlines.ts'
import { createManualClock } from '../rigs/clock.ts'

const step = fc.record({
  ms: fc.constantFrom(10, 25, 400),
  /** Which are called off, counted from the newest. */
  off: fc.array(fc.nat(12), { maxLength: 2 }),
  waitMs: fc.nat(6),
})

// Goal: whatever is set and called off, in any order and more than once, exactly the others are called, once, at their time.
test('against a model', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async steps => {
      const clock = createManualClock()
      const deadlines = createDeadlines(clock)
      const fired: string[] = []
      const open: { readonly dueMs: number; readonly stop: () => void; isOff: boolean }[] = []
      for (const [id, { ms, off, waitMs }] of steps.entries()) {
        const stop = deadlines.after(ms, () => fired.push(`${id} at ${clock.monotonicMs()}`))
        open.push({ dueMs: clock.monotonicMs() + ms, stop, isOff: false })
        for (const back of off) {
          const one = open[open.length - 1 - back]
          one?.stop()
          if (one !== undefined && one.dueMs > clock.monotonicMs()) one.isOff = true
        }
        await clock.elapse(waitMs)
      }
      await clock.elapse(400)
      const expected = open.flatMap(({ dueMs, isOff }, id) => (isOff ? [] : [`${id} at ${dueMs}`]))
      expect(fired.toSorted()).toEqual(expected.toSorted())
    }),
  )
})

// Goal: a thousand deadlines of one length need one timer, and none when nothing is left.
test('timers', async () => {
  const clock = createManualClock()
  const deadlines = createDeadlines(clock)
  const stops = Array.from({ length: 1000 }, () => deadlines.after(50, () => {}))
  expect(clock.pending()).toEqual([50])
  await clock.elapse(20)
  deadlines.after(50, () => {})
  for (const stop of stops) stop()
  expect(clock.pending()).toEqual([30])
  await clock.elapse(30)
  expect(clock.pending()).toEqual([20])
  await clock.elapse(20)
  expect(clock.pending()).toEqual([])
})

// Goal: who is called may set another of the same length, and call off those that are due at the same time.
test('from within', async () => {
  const clock = createManualClock()
  const deadlines = createDeadlines(clock)
  const fired: string[] = []
  deadlines.after(10, () => {
    fired.push('first')
    stop()
    deadlines.after(10, () => fired.push('third'))
  })
  const stop = deadlines.after(10, () => fired.push('second'))
  await clock.elapse(10)
  expect(fired).toEqual(['first'])
  await clock.elapse(10)
  expect(fired).toEqual(['first', 'third'])
})
