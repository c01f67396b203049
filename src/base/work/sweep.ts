// Work that is repeated until a signal, or until it succeeds. Effects: timers.

import { type Clock, pause } from '../clock.ts'
import { type BackOffRange, backOffMs } from './back-off.ts'

type Sweep = { readonly clock: Pick<Clock, 'sleep'>; readonly intervalMs: number; readonly signal: AbortSignal }

/** Runs `work` now, and again `intervalMs` after each end, until the signal is aborted. Rejects if `work` throws. */
export async function sweep(timing: Sweep, work: () => Promise<void> | void): Promise<void> {
  if (timing.signal.aborted) return
  await work()
  await sweepLater(timing, work)
}

/** As `sweep`, with the first run after `intervalMs`. */
export async function sweepLater(
  { clock, intervalMs, signal }: Sweep,
  work: () => Promise<void> | void,
): Promise<void> {
  for (;;) {
    await pause(clock, intervalMs, signal)
    if (signal.aborted) return
    await work()
  }
}

export type Retry = {
  readonly clock: Pick<Clock, 'sleep'>
  readonly range: BackOffRange
  readonly signal: AbortSignal
  readonly onFailure: (error: unknown, retryMs: number) => void
}

/** Runs `work` until it succeeds once or the signal is aborted. Never rejects. */
export async function untilDone({ clock, range, signal, onFailure }: Retry, work: () => Promise<void>): Promise<void> {
  for (let failures = 1; !signal.aborted; failures += 1) {
    try {
      return await work()
    } catch (error) {
      if (signal.aborted) return
      const retryMs = backOffMs(range, failures)
      onFailure(error, retryMs)
      await pause(clock, retryMs, signal)
    }
  }
}
