// Decides when the next request may be sent. Effects: waits, by the clock that it is given.

import { type Clock, pause } from '../../base/clock.ts'

export type RateLimits = {
  /** Interval between two requests for a VCEK, for any chip and TCB. */
  readonly vcekIntervalMs: number
  /** Longest wait for a turn. A request that would have to wait longer is refused at once. */
  readonly waitMsMax: number
  readonly waitersMax: number
  /** Pause after a 429 without Retry-After. */
  readonly blockMs: number
  /** Maximum, even if Retry-After is longer. */
  readonly blockMsMax: number
}

export const RATE_LIMITS: RateLimits = {
  vcekIntervalMs: 10_000,
  waitMsMax: 60_000,
  /** No share: requests about this host's own chip, one for all VMs. */
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

  /** Waits for a turn. Null to send now; a number to refuse: the required wait in ms, or the signal was aborted. */
  async enter(isVcek: boolean, signal: AbortSignal): Promise<number | null> {
    const startedMs = this.#clock.monotonicMs()
    for (;;) {
      const nowMs = this.#clock.monotonicMs()
      const waitMs = (isVcek ? Math.max(this.#vcekAtMs, this.#blockedToMs) : this.#blockedToMs) - nowMs
      if (waitMs <= 0) {
        if (isVcek) this.#vcekAtMs = nowMs + this.#limits.vcekIntervalMs
        return null
      }
      const isTooLong = nowMs + waitMs - startedMs > this.#limits.waitMsMax
      if (isTooLong || signal.aborted || this.#waiters >= this.#limits.waitersMax) return waitMs
      this.#waiters += 1
      try {
        await pause(this.#clock, waitMs, signal)
      } finally {
        this.#waiters -= 1
      }
    }
  }

  /** Call it when the service responded with 429. Blocks requests for some time and returns how long, in ms. */
  block(retryAfterMs: number | null): number {
    const { blockMs, blockMsMax } = this.#limits
    const forMs = Math.min(retryAfterMs ?? blockMs, blockMsMax)
    this.#blockedToMs = Math.max(this.#blockedToMs, this.#clock.monotonicMs() + forMs)
    return forMs
  }
}
