// How fast something may go on: so much a second, and a second's worth at once. Effects: reads a clock.

import type { Clock } from '../clock.ts'

export class Allowance {
  readonly #perSecondMax: number
  readonly #clock: Pick<Clock, 'monotonicMs'>
  /** Below zero there is a pause to make. */
  #left: number
  #filledAtMs: number

  constructor(perSecondMax: number, clock: Pick<Clock, 'monotonicMs'>) {
    this.#perSecondMax = perSecondMax
    this.#clock = clock
    this.#left = perSecondMax
    this.#filledAtMs = clock.monotonicMs()
  }

  /** Takes so much. Returns for how long to wait before more is taken; 0 for not at all. */
  owedMs(amount: number): number {
    const nowMs = this.#clock.monotonicMs()
    const refill = ((nowMs - this.#filledAtMs) / 1000) * this.#perSecondMax
    this.#left = Math.min(this.#perSecondMax, this.#left + refill) - amount
    this.#filledAtMs = nowMs
    return this.#left >= 0 ? 0 : (-this.#left / this.#perSecondMax) * 1000
  }
}
