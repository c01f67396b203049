// Goal: PID 1 of the gateway's VM keeps the gateway running within bounds, reaps orphans, and ends the machine once.

import { describe, expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { type InitSettings, nextDelayS, runInit, type ServedProcess } from '../../src/enclave/boot.ts'

type Start = { readonly end: (exitCode: number) => void; readonly signals: string[]; readonly pid: number }

/** A machine whose init runs: its starts, its console, and its children that have ended. */
function machine({ failing = 0 }: { readonly failing?: number } = {}) {
  const clock = createManualClock()
  const starts: Start[] = []
  const stages: string[] = []
  const ended: number[] = []
  const collected: number[] = []
  let restarts = 0
  let powerOff = () => {}
  let failuresLeft = failing
  const start = (): ServedProcess => {
    if (failuresLeft > 0) {
      failuresLeft -= 1
      throw new Error('ENOMEM')
    }
    const { promise, resolve } = Promise.withResolvers<number>()
    const item = { end: resolve, signals: [] as string[], pid: 100 + starts.length }
    starts.push(item)
    return { pid: item.pid, exited: promise, kill: signal => item.signals.push(signal) }
  }
  const settings: InitSettings = {
    start,
    clock,
    showStage: stage => stages.push(stage),
    children: {
      ended: () => ended[0] ?? null,
      collect: pid => {
        collected.push(pid)
        ended.splice(ended.indexOf(pid), 1)
      },
    },
    onPowerOff: listener => {
      powerOff = listener
    },
    restartMachine: () => {
      restarts += 1
    },
  }
  void runInit(settings)
  return { clock, starts, stages, ended, collected, powerOff: () => powerOff(), restarts: () => restarts }
}

// Goal: a gateway that cannot run does not keep the machine busy, and one that ran well is back at once.
test('the time before the next start', () => {
  const delays: number[] = []
  for (let delayS = 0; delays.length < 7; delays.push(delayS)) delayS = nextDelayS(delayS, 59_999)
  expect(delays).toEqual([1, 2, 4, 8, 16, 30, 30])
  expect(nextDelayS(30, 60_000)).toBe(1)
})

describe('the gateway', () => {
  // Goal: it is started again after its time, each time, and the console says when and how it ended.
  test('comes back when it has ended', async () => {
    const { clock, starts, stages } = machine()
    for (const [exitCode, ranMs, delayMs] of [
      [137, 0, 1_000],
      [1, 100, 2_000],
      [1, 60_000, 1_000],
    ] as const) {
      const count = starts.length
      await clock.elapse(ranMs)
      starts.at(-1)?.end(exitCode)
      await clock.elapse(delayMs - 1)
      expect(starts).toHaveLength(count)
      await clock.elapse(1)
      expect(starts).toHaveLength(count + 1)
    }
    expect(stages).toEqual([
      'gateway ended (exit code 137), next start in 1 s',
      'gateway ended (exit code 1), next start in 2 s',
      'gateway ended (exit code 1), next start in 1 s',
    ])
  })

  // Goal: a start that fails is no end of PID 1, which would be a panic.
  test('that cannot be started is started later', async () => {
    const { clock, starts, stages } = machine({ failing: 2 })
    await clock.elapse(3_000)
    expect(starts).toHaveLength(1)
    expect(stages).toEqual([
      'gateway ended (not started), next start in 1 s',
      'gateway ended (not started), next start in 2 s',
    ])
  })
})

describe('what has ended', () => {
  // Goal: orphans do not stay as zombies; the gateway itself is left to the runtime that waits for it.
  test('is collected, but for the gateway', async () => {
    const { clock, starts, ended, collected } = machine()
    await clock.elapse(0)
    const own = starts[0]?.pid ?? 0
    ended.push(7, 8, own, 9)
    await clock.elapse(10_000)
    expect(collected).toEqual([7, 8])
    ended.splice(ended.indexOf(own), 1)
    await clock.elapse(10_000)
    expect(collected).toEqual([7, 8, 9])
  })

  // Goal: however many there are, PID 1 goes on with the rest of its work in between.
  test('is collected by 1,024 a second, and looked for every ten seconds at rest', async () => {
    const { clock, ended, collected } = machine()
    await clock.elapse(0)
    ended.push(...Array.from({ length: 1_500 }, (_, at) => 1_000 + at))
    await clock.elapse(9_999)
    expect(collected).toHaveLength(0)
    await clock.elapse(1)
    expect(collected).toHaveLength(1_024)
    await clock.elapse(1_000)
    expect(collected).toHaveLength(1_500)
  })
})

describe('powering off', () => {
  // Goal: the gateway gets the signal, the machine ends after it, and nothing is started any more.
  test('waits for the gateway', async () => {
    const { clock, starts, stages, powerOff, restarts } = machine()
    await clock.elapse(0)
    powerOff()
    powerOff()
    expect(starts[0]?.signals).toEqual(['SIGTERM'])
    await clock.elapse(4_999)
    expect(restarts()).toBe(0)
    starts[0]?.end(143)
    await clock.elapse(60_000)
    expect([restarts(), starts.length, stages]).toEqual([1, 1, ['powering off']])
  })

  // Goal: a gateway that does not end holds nothing up for long.
  test('waits no longer than five seconds', async () => {
    const { clock, powerOff, restarts } = machine()
    await clock.elapse(0)
    powerOff()
    await clock.elapse(5_000)
    expect(restarts()).toBe(1)
  })

  // Goal: between two starts there is nothing to wait for.
  test('while no gateway runs is at once', async () => {
    const { clock, starts, powerOff, restarts } = machine()
    starts[0]?.end(1)
    await clock.elapse(500)
    powerOff()
    await clock.elapse(0)
    expect(restarts()).toBe(1)
    await clock.elapse(60_000)
    expect(starts).toHaveLength(1)
  })
})
