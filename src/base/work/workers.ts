// One worker per key: one run at a time per key, keys independent, woken by changes, retried with back-off. No I/O.
//
// Level-triggered: a wake does not say what has changed, so wakes may be merged and repeated.

import type { Clock } from '../clock.ts'
import { type BackOffRange, backOffMs } from './back-off.ts'
import { sweep } from './sweep.ts'

export type Workers = {
  /** Runs the key's work soon, or once more after the present run. Never throws, never waits. */
  readonly wake: (key: string) => void
  /** Wakes the key after `ms`, unless something wakes it earlier. */
  readonly alarm: (key: string, ms: number) => void
  /** Calls `act` now and every `intervalMs` until `stop`, in case an event was missed. `act` must not throw. */
  readonly sweep: (intervalMs: number, act: () => void) => void
  /** Starts no more work; resolves when running work has ended. */
  readonly stop: () => Promise<void>
}

type WorkersDeps = {
  readonly clock: Clock
  readonly work: (key: string) => Promise<void>
  /** A failure of `work`, with the time until the next attempt. */
  readonly onFailure: (failure: { key: string; error: unknown; retryMs: number }) => void
  /** From 200 ms to 10 s unless given. */
  readonly retry?: BackOffRange
}

const usualRetry: BackOffRange = { minMs: 200, maxMs: 10_000 }

type Slot = { busy: Promise<void> | null; woken: boolean; failures: number; alarm: AbortController | null }

export function createWorkers(deps: WorkersDeps): Workers {
  const slots = new Map<string, Slot>()
  const stopping = new AbortController()

  const slotOf = (key: string): Slot => {
    const known = slots.get(key)
    if (known) return known
    const slot: Slot = { busy: null, woken: false, failures: 0, alarm: null }
    slots.set(key, slot)
    return slot
  }

  const wake = (key: string) => {
    if (stopping.signal.aborted) return
    const slot = slotOf(key)
    slot.woken = true
    slot.busy ??= serve(key, slot)
  }

  const alarm = (key: string, ms: number) => {
    if (stopping.signal.aborted) return
    const slot = slotOf(key)
    slot.alarm?.abort()
    const controller = new AbortController()
    slot.alarm = controller
    deps.clock.sleep(Math.max(ms, 1), controller.signal).then(
      () => wake(key),
      () => {},
    )
  }

  const serve = async (key: string, slot: Slot): Promise<void> => {
    // Not in the caller's turn of the event loop: the caller must neither wait nor see a failure.
    await Promise.resolve()
    while (slot.woken && !stopping.signal.aborted) {
      slot.woken = false
      slot.alarm?.abort()
      slot.alarm = null
      try {
        await deps.work(key)
        slot.failures = 0
      } catch (error) {
        slot.failures += 1
        const retryMs = backOffMs(deps.retry ?? usualRetry, slot.failures)
        deps.onFailure({ key, error, retryMs })
        alarm(key, retryMs)
      }
    }
    slot.busy = null
    if (slot.alarm === null) slots.delete(key)
  }

  return {
    wake,
    alarm,
    sweep: (intervalMs, act) => void sweep({ clock: deps.clock, intervalMs, signal: stopping.signal }, act),
    stop: async () => {
      stopping.abort()
      for (const slot of slots.values()) slot.alarm?.abort()
      await Promise.allSettled([...slots.values()].map(slot => slot.busy))
    },
  }
}
