import { expect, test } from 'bun:test'
import { createWorkers } from '../../src/base/workers.ts'
import { createManualClock } from '../rigs/clock.ts'

function bench(work: (key: string) => Promise<void>) {
  const clock = createManualClock()
  const failures: number[] = []
  const workers = createWorkers({
    clock,
    work,
    retryMinMs: 100,
    retryMaxMs: 1_000,
    onFailure: failure => failures.push(failure.retryMs),
  })
  return { clock, workers, failures }
}

test('wakes during work are merged into one more look, and never overlap', async () => {
  // Goal: one worker per key at a time; a change during work is not lost, however many there are.
  let running = 0
  let looks = 0
  const gates: (() => void)[] = []
  const { clock, workers } = bench(async () => {
    running += 1
    looks += 1
    expect(running).toBe(1)
    await new Promise<void>(resolve => gates.push(resolve))
    running -= 1
  })
  workers.wake('a')
  await clock.elapse(0)
  for (let i = 0; i < 5; i += 1) workers.wake('a')
  gates.shift()?.()
  await clock.elapse(0)
  expect(looks).toBe(2)
  gates.shift()?.()
  await clock.elapse(0)
  expect(looks).toBe(2)
})

test('keys do not wait for each other', async () => {
  // Goal: one that hangs slows nobody.
  const done: string[] = []
  const { clock, workers } = bench(async key => {
    if (key === 'stuck') await new Promise(() => {})
    done.push(key)
  })
  workers.wake('stuck')
  workers.wake('free')
  await clock.elapse(0)
  expect(done).toEqual(['free'])
})

test('failures are tried again, later each time up to a bound, and success forgets them', async () => {
  // Goal: back-off doubles from the least to the most, a wake cuts it short, and nothing is thrown at the caller.
  let failing = true
  let looks = 0
  const { clock, workers, failures } = bench(async () => {
    looks += 1
    if (failing) throw new Error('no')
  })
  workers.wake('a')
  await clock.elapse(60_000)
  expect(failures.slice(0, 6)).toEqual([100, 200, 400, 800, 1_000, 1_000])
  failing = false
  workers.wake('a')
  await clock.elapse(0)
  const after = looks
  await clock.elapse(60_000)
  expect(looks).toBe(after)
  failing = true
  workers.wake('a')
  await clock.elapse(0)
  expect(failures.at(-1)).toBe(100)
})

test('an alarm wakes once at its time, and a later alarm replaces it', async () => {
  // Goal: deadlines come on time, and at most one per key is waiting.
  const at: number[] = []
  const { clock, workers } = bench(async () => {
    at.push(clock.monotonicMs())
  })
  workers.alarm('a', 500)
  workers.alarm('a', 900)
  expect(clock.pending()).toEqual([900])
  await clock.elapse(2_000)
  expect(at).toEqual([900])
})

test('after stop nothing begins, and what runs is waited for', async () => {
  // Goal: a stopping daemon does not start new work and does not cut running work.
  let looks = 0
  let finish = () => {}
  const { clock, workers } = bench(async () => {
    looks += 1
    await new Promise<void>(resolve => {
      finish = resolve
    })
  })
  workers.wake('a')
  workers.alarm('b', 100)
  await clock.elapse(0)
  let stopped = false
  const stopping = workers.stop().then(() => {
    stopped = true
  })
  workers.wake('c')
  await clock.elapse(1_000)
  expect(stopped).toBe(false)
  finish()
  await stopping
  expect(looks).toBe(1)
})
