// Protects records that are kept for days from a wall clock that was set forward: deleting waits a day, enough to set
// it right. Effects: the log.

import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'

/** Smaller jumps do not matter: records are kept for days. */
const jumpMs = 60 * 60 * 1000
const holdMs = 24 * 60 * 60 * 1000

export class JumpGuard {
  readonly #clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly #log: Pick<Logger, 'error'>
  /** Trusted difference between the wall clock and the monotonic clock. */
  #offsetMs: number
  #heldAtMs: number | null = null

  constructor(clock: Pick<Clock, 'nowMs' | 'monotonicMs'>, log: Pick<Logger, 'error'>) {
    this.#clock = clock
    this.#log = log
    this.#offsetMs = clock.nowMs() - clock.monotonicMs()
  }

  /** Whether old records may be deleted. Call it every round: it measures the jump since the last call. */
  mayDelete(): boolean {
    const nowMs = this.#clock.monotonicMs()
    const offsetMs = this.#clock.nowMs() - nowMs
    const aheadMs = offsetMs - this.#offsetMs
    if (aheadMs > jumpMs) {
      if (this.#heldAtMs === null) {
        const fields = { aheadMs: Math.round(aheadMs), holdMs, remedy: 'check the clock of this host (timedatectl)' }
        this.#log.error('the clock was set forward; nothing is deleted by age for a day', fields)
        this.#heldAtMs = nowMs
      }
      if (nowMs - this.#heldAtMs < holdMs) return false
    }
    this.#offsetMs = offsetMs
    this.#heldAtMs = null
    return true
  }
}
