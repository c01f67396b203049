// Clocks of tests: one that moves only when the test says so, and one of real time that is fair to this process.

import { type Clock, systemClock } from '../../src/base/clock.ts'

export type ManualClock = Clock & {
  /** Moves both clocks on and lets every sleep that is due end. */
  readonly advance: (ms: number) => void
  /** Lets time pass sleep by sleep, each in its order, and lets what they wake run before the next. */
  readonly elapse: (ms: number) => Promise<void>
  /** How long the present sleepers have still to sleep, shortest first. */
  readonly pending: () => number[]
  /** Sets the wall clock alone, either way. */
  readonly set: (nowMs: number) => void
  /** Resolves once this many sleeps are under way. */
  readonly sleepers: (count: number) => Promise<void>
}

/** Durations and the wall clock move together, unless the wall clock is set. */
export function createManualClock(startMs = Date.UTC(2026, 10, 20, 8, 30)): ManualClock {
  let wallMs = startMs
  let elapsedMs = 0
  const asleep = new Set<{ dueMs: number; wake: () => void }>()
  let watchers: { count: number; seen: () => void }[] = []
  const look = () => {
    for (const watcher of watchers.filter(({ count }) => asleep.size >= count)) watcher.seen()
    watchers = watchers.filter(({ count }) => asleep.size < count)
  }
  const advance = (ms: number) => {
    elapsedMs += ms
    wallMs += ms
    for (const sleeper of [...asleep].filter(({ dueMs }) => dueMs <= elapsedMs)) {
      asleep.delete(sleeper)
      sleeper.wake()
    }
  }
  const pending = () => [...asleep].map(({ dueMs }) => dueMs - elapsedMs).sort((a, b) => a - b)
  return {
    nowMs: () => wallMs,
    monotonicMs: () => elapsedMs,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason)
        if (ms === 0) return resolve()
        const sleeper = { dueMs: elapsedMs + ms, wake: () => resolve() }
        asleep.add(sleeper)
        signal?.addEventListener('abort', () => {
          asleep.delete(sleeper)
          reject(signal.reason)
        })
        look()
      }),
    advance,
    pending,
    elapse: async ms => {
      const endMs = elapsedMs + ms
      await settled()
      for (let next = pending()[0]; next !== undefined && elapsedMs + next <= endMs; next = pending()[0]) {
        advance(next)
        await settled()
      }
      advance(endMs - elapsedMs)
      await settled()
    },
    set: nowMs => {
      wallMs = nowMs
    },
    sleepers: count =>
      new Promise(resolve => {
        watchers.push({ count, seen: resolve })
        look()
      }),
  }
}

const sliceMs = 250

/**
 * Real time. Where both sides of a test are in this process, nobody can answer while it does not run: a halt of any
 * length costs a sleep of this clock a slice.
 */
export const runningClock: Clock = {
  ...systemClock,
  sleep: async (ms, signal) => {
    for (let leftMs = ms - sliceMs; leftMs > 0; leftMs -= sliceMs) await systemClock.sleep(sliceMs, signal)
    await systemClock.sleep(Math.min(ms, ms % sliceMs || sliceMs), signal)
  },
}

const turnsMax = 20

/** Lets everything that is ready to run do so. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < turnsMax; turn += 1) await Promise.resolve()
}
