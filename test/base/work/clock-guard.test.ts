// Deletion by age under a wall clock that is wrong at the start, or is set later.

import { expect, test } from 'bun:test'
import { createManualClock, type ManualClock } from '../../../scripts/rigs/clock.ts'
import { ClockGuard, type ClockMark, clockProblem } from '../../../src/base/work/clock-guard.ts'

const hourMs = 3_600_000
const dayMs = 24 * hourMs

/** A host that reboots and starts daemons; its mark is what a database would keep. */
function host(clock: ManualClock = createManualClock()) {
  const told: string[] = []
  const events: string[] = []
  let mark: ClockMark | null = null
  const state = { bootId: 'a', isSynchronised: false, isFull: false }
  const log = (message: string) => told.push(message)
  const start = () =>
    new ClockGuard({
      clock,
      host: { bootId: state.bootId, uptimeMs: clock.monotonicMs, isSynchronised: () => state.isSynchronised },
      readMark: () => mark,
      writeMark: written => {
        if (state.isFull) throw new Error('disk full')
        mark = written
      },
      log: { error: log, warn: log, info: log },
      onEvent: kind => events.push(kind),
    })
  const runFor = async (guard: ClockGuard, ms: number) => {
    const stopping = new AbortController()
    const running = guard.run(stopping.signal)
    await clock.elapse(ms)
    stopping.abort()
    await running
  }
  return { clock, told, events, state, start, runFor, mark: () => mark }
}

// Goal: a daemon that starts with a clock that is years ahead deletes nothing, however long it runs and however often
// it starts; it deletes again when the clock is right.
test('a start with a clock that is years ahead', async () => {
  const { clock, events, told, start, runFor } = host()
  await runFor(start(), hourMs)
  const wrongMs = 5 * 365 * dayMs
  clock.set(clock.nowMs() + wrongMs)
  for (let starts = 0; starts < 3; starts += 1) {
    const guard = start()
    expect(guard.mayDelete()).toBe(false)
    await runFor(guard, 2 * dayMs)
    expect(guard.mayDelete()).toBe(false)
    expect(Math.abs(guard.view().aheadMs - wrongMs)).toBeLessThan(1_000)
    expect(Math.abs(clock.nowMs() - guard.certainMs() - wrongMs)).toBeLessThan(1_000)
  }
  expect([events, told.length]).toEqual([['host.clock_held', 'host.clock_held', 'host.clock_held'], 3])
  const guard = start()
  clock.set(clock.nowMs() - wrongMs)
  expect(guard.mayDelete()).toBe(true)
  expect(guard.certainMs()).toBe(clock.nowMs())
  expect(events.at(-1)).toBe('host.clock_believed')
})

// Goal: the operator's word is enough, is kept over a restart, and holds for this difference alone.
test('confirmed by the operator', async () => {
  const { clock, events, start } = host()
  start()
  clock.set(clock.nowMs() + 400 * dayMs)
  const guard = start()
  expect(clockProblem(guard.view())).toContain('400 days ahead')
  expect(guard.confirm()).toBe(clock.nowMs())
  expect([guard.mayDelete(), clockProblem(guard.view()), events.at(-1)]).toEqual([true, null, 'host.clock_confirmed'])
  clock.advance(60_000)
  expect(start().mayDelete()).toBe(true)
  clock.set(clock.nowMs() + 400 * dayMs)
  expect([guard.mayDelete(), start().mayDelete()]).toEqual([false, false])
})

// Goal: a clock behind the last time that was believed holds too, and the time in between is not lost from view.
test('a start with a clock that is behind', () => {
  const { clock, start } = host()
  start()
  clock.advance(hourMs)
  const rightMs = clock.nowMs()
  clock.set(0)
  const guard = start()
  expect(guard.mayDelete()).toBe(false)
  expect(clockProblem(guard.view())).toContain('behind')
  expect(guard.certainMs()).toBe(0)
  clock.set(rightMs)
  expect(guard.mayDelete()).toBe(true)
})

// Goal: within a boot the uptime decides, to the hour: a daemon that was down for months is no leap, an hour more is.
test('a daemon that was down while its host ran', () => {
  const { clock, start } = host()
  start()
  clock.advance(100 * dayMs)
  expect(start().mayDelete()).toBe(true)
  clock.advance(100 * dayMs)
  clock.set(clock.nowMs() + hourMs)
  expect(start().mayDelete()).toBe(true)
  clock.set(clock.nowMs() + hourMs + 1)
  expect(start().mayDelete()).toBe(false)
})

// Goal: after a reboot nobody knows how long the host was off: a week is believed of a clock that a time server keeps,
// more only of the operator.
test('a host that was off', () => {
  const off = (ms: number) => {
    const bench = host()
    bench.start()
    bench.state.bootId = 'b'
    bench.clock.set(bench.clock.nowMs() + ms)
    return bench
  }
  expect(off(hourMs).start().mayDelete()).toBe(true)
  const weekend = off(3 * dayMs)
  const guard = weekend.start()
  expect(guard.mayDelete()).toBe(false)
  weekend.state.isSynchronised = true
  expect(guard.mayDelete()).toBe(true)
  const long = off(7 * dayMs + 1)
  long.state.isSynchronised = true
  expect(long.start().mayDelete()).toBe(false)
})

// Goal: the same rules hold for a clock that is set while the daemon runs.
test('a clock that is set while the daemon runs', () => {
  const { clock, told, start } = host()
  const guard = start()
  for (const jumpMs of [hourMs, -hourMs]) {
    clock.set(clock.nowMs() + jumpMs)
    expect(guard.mayDelete()).toBe(true)
  }
  clock.set(clock.nowMs() + 40 * dayMs)
  for (let round = 0; round < 500; round += 1) {
    expect(guard.mayDelete()).toBe(false)
    clock.advance(10 * 60_000)
  }
  expect(told).toHaveLength(1)
  clock.set(clock.nowMs() - 40 * dayMs)
  expect(guard.mayDelete()).toBe(true)
  clock.advance(40 * dayMs)
  expect(guard.mayDelete()).toBe(true)
})

// Goal: the mark follows the clock each minute; a disk that is full is no reason to end, and to delete.
test('the mark', async () => {
  const { clock, told, state, start, runFor, mark } = host()
  const guard = start()
  await runFor(guard, 10 * 60_000)
  expect(mark()).toEqual({ wallMs: clock.nowMs(), bootId: 'a', uptimeMs: clock.monotonicMs() })
  state.isFull = true
  await runFor(guard, 60_000)
  expect(told[0]).toContain('not stored')
  state.isFull = false
  clock.set(8.7e15)
  expect(clockProblem(start().view())).toContain('ahead')
})
