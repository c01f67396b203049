// Time as a dependency: wall clock for records and retention (may jump), monotonic clock for durations. Effects:
// timers.

export type Clock = {
  /** Milliseconds since the Unix epoch; may jump either way. */
  readonly nowMs: () => number
  /** Milliseconds that never decrease, from an unspecified origin. */
  readonly monotonicMs: () => number
  /** Resolves after `ms` milliseconds, at most 24 days, at once for less than 0; rejects with the signal's reason. */
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>
}

/** Waits `ms` milliseconds, less when the signal is aborted. Never rejects: the caller looks at the signal. */
export function pause(clock: Pick<Clock, 'sleep'>, ms: number, signal: AbortSignal): Promise<void> {
  return clock.sleep(ms, signal).catch(() => {})
}

/** Calls `act` once when the signal is aborted, or at once if it already is. The returned function cancels that. */
export function onAbort(signal: AbortSignal, act: () => void): () => void {
  if (signal.aborted) act()
  else signal.addEventListener('abort', act, { once: true })
  return () => signal.removeEventListener('abort', act)
}

/** A longer timer of the runtime ends at once, and a loop that reads the clock again would never stop. */
const sleepMsMax = 2 ** 31 - 1

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason)
      const stop = () => {
        clearTimeout(timer)
        reject(signal?.reason)
      }
      const timer = setTimeout(
        () => {
          signal?.removeEventListener('abort', stop)
          resolve()
        },
        Math.max(0, Math.min(ms, sleepMsMax)),
      )
      signal?.addEventListener('abort', stop, { once: true })
    }),
}

/** ISO 8601 UTC with milliseconds, or null. */
export function isoOrNull(ms: number | null): string | null {
  return ms === null ? null : iso(ms)
}

export function iso(ms: number): string {
  return new Date(ms).toISOString()
}
