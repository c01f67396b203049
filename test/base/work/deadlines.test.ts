import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'

const step = fc.record({
  ms: fc.constantFrom(10, 25, 400),
  /** Which are cancelled, counted from the newest. */
  off: fc.array(fc.nat(12), { maxLength: 2 }),
  waitMs: fc.nat(6),
})

// Deadlines are set and cancelled in any order, some cancelled twice; the expected calls are computed beside.
test('goal: exactly the deadlines that were not cancelled are called, once, at their time', async () => {
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
          const entry = open[open.length - 1 - back]
          entry?.stop()
          if (entry !== undefined && entry.dueMs > clock.monotonicMs()) entry.isOff = true
        }
        await clock.elapse(waitMs)
      }
      await clock.elapse(400)
      const expected = open.flatMap(({ dueMs, isOff }, id) => (isOff ? [] : [`${id} at ${dueMs}`]))
      expect(fired.toSorted()).toEqual(expected.toSorted())
    }),
  )
})

test('goal: a thousand deadlines of one length need one timer, and none when all are over', async () => {
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

test('goal: a call may set another deadline of its length, and cancel those that are due at the same time', async () => {
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

test('goal: one that moves is called at the last time that was set, once, among others of its lengths; cleared, it is not', async () => {
  const moves = fc.record({
    which: fc.nat(3),
    ms: fc.constantFrom(null, 10, 25),
    waitMs: fc.nat(12),
    others: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(moves, { maxLength: 60 }), async steps => {
      const clock = createManualClock()
      const deadlines = createDeadlines(clock)
      const fired: string[] = []
      const expected: string[] = []
      const due: (number | null)[] = [null, null, null, null]
      const moving = due.map((_, at) => deadlines.moving(() => fired.push(`${at} at ${clock.monotonicMs()}`)))
      const pass = async (ms: number) => {
        const untilMs = clock.monotonicMs() + ms
        await clock.elapse(ms)
        for (const [at, dueMs] of due.entries()) {
          if (dueMs === null || dueMs > untilMs) continue
          expected.push(`${at} at ${dueMs}`)
          due[at] = null
        }
      }
      for (const { which, ms, waitMs, others } of steps) {
        if (others) deadlines.after(10, () => {})
        if (ms === null) moving[which]?.clear()
        else moving[which]?.set(ms)
        due[which] = ms === null ? null : clock.monotonicMs() + ms
        await pass(waitMs)
      }
      await pass(25)
      expect(fired.toSorted()).toEqual(expected.toSorted())
    }),
  )
})
