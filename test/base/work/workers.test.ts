import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createWorkers } from '../../../src/base/work/workers.ts'

function bench(work: (key: string) => Promise<void>) {
  const clock = createManualClock()
  const failures: number[] = []
  const workers = createWorkers({
    clock,
    work,
    retry: { minMs: 100, maxMs: 1_000 },
    onFailure: failure => failures.push(failure.retryMs),
  })
  return { clock, workers, failures }
}

test('goal: one run per key at a time, and one more after any number of wakes during a run', async () => {
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

test('goal: a key whose work hangs does not hold up other keys', async () => {
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

test('goal: after failures the wait doubles up to a limit, a wake ends it early, and success resets it', async () => {
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

test('goal: an alarm wakes once at its time, and a later alarm replaces it', async () => {
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

test('goal: a stop starts no new work and waits for running work', async () => {
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

test('goal: a sweep acts now and at every interval, and no more after the end', async () => {
  const { clock, workers } = bench(async () => {})
  let sweeps = 0
  workers.sweep(5_000, () => {
    sweeps += 1
  })
  expect(sweeps).toBe(1)
  await clock.elapse(4_999)
  expect(sweeps).toBe(1)
  await clock.elapse(1)
  expect(sweeps).toBe(2)
  await workers.stop()
  await clock.elapse(60_000)
  expect(sweeps).toBe(2)
})
