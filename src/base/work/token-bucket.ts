// A token bucket that refills at a rate per second and holds one second's worth. Effects: reads a clock.

import type { Clock } from '../clock.ts'

export class TokenBucket {
  readonly #perSecondMax: number
  readonly #clock: Pick<Clock, 'monotonicMs'>
  /** Below zero: the caller has to wait. */
  #left: number
  #filledAtMs: number

  constructor(perSecondMax: number, clock: Pick<Clock, 'monotonicMs'>) {
    this.#perSecondMax = perSecondMax
    this.#clock = clock
    this.#left = perSecondMax
    this.#filledAtMs = clock.monotonicMs()
  }

  /** Spends `amount` tokens; returns for how many milliseconds to wait before the next call. */
  take(amount: number): number {
    const nowMs = this.#clock.monotonicMs()
    const refill = ((nowMs - this.#filledAtMs) / 1000) * this.#perSecondMax
    this.#left = Math.min(this.#perSecondMax, this.#left + refill) - amount
    this.#filledAtMs = nowMs
    return this.#left >= 0 ? 0 : (-this.#left / this.#perSecondMax) * 1000
  }
}
