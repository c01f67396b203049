// Work that is repeated until a signal. Effects: timers.

import { type Clock, pause } from '../clock.ts'

type Sweep = { readonly clock: Pick<Clock, 'sleep'>; readonly intervalMs: number; readonly signal: AbortSignal }

/** Runs `work` now, and again `intervalMs` after each end, until the signal is aborted. Rejects if `work` throws. */
export async function sweep(timing: Sweep, work: () => Promise<void> | void): Promise<void> {
  if (timing.signal.aborted) return
  await work()
  await sweepLater(timing, work)
}

/** Like `sweep`, with the first run after `intervalMs`. */
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
