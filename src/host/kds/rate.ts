// When the next request may go out. Effects: waits, by the clock it is given.

import type { Clock } from '../../base/clock.ts'

export type RateLimits = {
  /** Between two VCEKs, whose chip or TCB ever they are of. */
  readonly vcekIntervalMs: number
  /** Longest wait in here; who would have to wait longer is told so at once. */
  readonly waitMsMax: number
  readonly waitersMax: number
  /** After a 429 that does not say how long, and at most after one that does. */
  readonly blockMs: number
  readonly blockMsMax: number
}

export const RATE_LIMITS: RateLimits = {
  vcekIntervalMs: 10_000,
  waitMsMax: 60_000,
  waitersMax: 16,
  blockMs: 10_000,
  blockMsMax: 3_600_000,
}

export class RateGate {
  readonly #clock: Clock
  readonly #limits: RateLimits
  #vcekAtMs = 0
  #blockedToMs = 0
  #waiters = 0

  constructor(clock: Clock, limits: Partial<RateLimits>) {
    this.#clock = clock
    this.#limits = { ...RATE_LIMITS, ...limits }
    this.#vcekAtMs = clock.monotonicMs()
    this.#blockedToMs = this.#vcekAtMs
  }

  /** Null: go now. Otherwise how long it would have taken, in milliseconds. */
  async enter(isVcek: boolean): Promise<number | null> {
    const startedMs = this.#clock.monotonicMs()
    for (;;) {
      const nowMs = this.#clock.monotonicMs()
      const waitMs = (isVcek ? Math.max(this.#vcekAtMs, this.#blockedToMs) : this.#blockedToMs) - nowMs
      if (waitMs <= 0) {
        if (isVcek) this.#vcekAtMs = nowMs + this.#limits.vcekIntervalMs
        return null
      }
      const isTooLong = nowMs + waitMs - startedMs > this.#limits.waitMsMax
      if (isTooLong || this.#waiters >= this.#limits.waitersMax) return waitMs
      this.#waiters += 1
      try {
        await this.#clock.sleep(waitMs)
      } finally {
        this.#waiters -= 1
      }
    }
  }

  /** The service said 429: nobody asks for this long. Answers how long that is. */
  block(askedMs: number | null): number {
    const { blockMs, blockMsMax } = this.#limits
    const forMs = Math.min(askedMs ?? blockMs, blockMsMax)
    this.#blockedToMs = Math.max(this.#blockedToMs, this.#clock.monotonicMs() + forMs)
    return forMs
  }
}
