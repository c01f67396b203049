// Work that is repeated until it succeeds. Effects: timers.

import { type Clock, pause } from '../clock.ts'
import { type BackOffRange, backOffMs } from './back-off.ts'

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
