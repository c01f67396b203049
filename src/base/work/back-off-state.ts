// Failures in a row, and when the next attempt is due. Effects: reads a clock.

import type { Clock } from '../clock.ts'
import { type BackOffRange, backOffMs } from './back-off.ts'

/** Counts failures in a row and computes when the next attempt is due. */
export class BackOff {
  readonly #range: BackOffRange
  readonly #clock: Pick<Clock, 'monotonicMs'>
  #failures = 0
  #nextAttemptMs = Number.NEGATIVE_INFINITY

  constructor(range: BackOffRange, clock: Pick<Clock, 'monotonicMs'>) {
    this.#range = range
    this.#clock = clock
  }

  /** In a row. */
  get failures(): number {
    return this.#failures
  }

  /** Counts a failure; returns the delay that follows. `isDelayed` false: the next attempt may be made at once. */
  failed({ isDelayed = true } = {}): number {
    this.#failures += 1
    const delayMs = isDelayed ? backOffMs(this.#range, this.#failures) : 0
    this.#nextAttemptMs = this.#clock.monotonicMs() + delayMs
    return delayMs
  }

  /** The next failure counts as the first. A delay that runs goes on. */
  reset(): void {
    this.#failures = 0
  }

  /** Time until the next attempt; 0 or less if it may be made now. */
  waitMs(): number {
    return this.#nextAttemptMs - this.#clock.monotonicMs()
  }
}
