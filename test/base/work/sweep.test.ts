// Goal: repeated work runs one at a time, an interval after its end, and not after the signal.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { sweep, sweepLater } from '../../../src/base/work/sweep.ts'
import { untilDone } from '../../../src/base/work/until-done.ts'

test('goal: the interval counts from the end of a run, and the signal ends a pause', async () => {
  const clock = createManualClock()
  const stopping = new AbortController()
  const timing = { clock, intervalMs: 1_000, signal: stopping.signal }
  let runs = 0
  let later = 0
  const swept = sweep(timing, async () => {
    runs += 1
    await clock.sleep(500)
  })
  const sweptLater = sweepLater(timing, () => {
    later += 1
  })
  expect([runs, later]).toEqual([1, 0])
  await clock.elapse(1_499)
  expect([runs, later]).toEqual([1, 1])
  await clock.elapse(1)
  expect(runs).toBe(2)
  await clock.elapse(500)
  stopping.abort()
  await Promise.all([swept, sweptLater])
  await clock.elapse(10_000)
  expect([runs, later]).toEqual([2, 2])
  await sweep(timing, () => expect.unreachable())
})

test('goal: work is repeated until it succeeds, and no more once the signal is aborted', async () => {
  const clock = createManualClock()
  const stopping = new AbortController()
  const retries: number[] = []
  let attempts = 0
  const retry = {
    clock,
    range: { minMs: 1_000, maxMs: 300_000 },
    signal: stopping.signal,
    onFailure: (_: unknown, retryMs: number) => retries.push(retryMs),
  }
  const work = async () => {
    attempts += 1
    if (attempts !== 3) throw new Error('not yet')
  }
  const done = untilDone(retry, work)
  await clock.elapse(3_000)
  await done
  expect([attempts, retries]).toEqual([3, [1_000, 2_000]])
  const stopped = untilDone(retry, work)
  await clock.elapse(0)
  stopping.abort()
  await stopped
  expect(attempts).toBe(4)
})
