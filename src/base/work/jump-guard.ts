// Keeps a wall clock that was set forward from deleting what is kept for days: whoever sets it right again within a day finds everything there. Effects:
// the log.

import type { Clock } from '../clock.ts'
import type { Logger } from '../log.ts'

/** What an hour means for a record that is kept for days is nothing. */
const jumpMs = 60 * 60 * 1000
const holdMs = 24 * 60 * 60 * 1000

export class JumpGuard {
  readonly #clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly #log: Pick<Logger, 'error'>
  /** How far the wall clock is ahead of the monotonic one, where that is believed. */
  #offsetMs: number
  #heldAtMs: number | null = null

  constructor(clock: Pick<Clock, 'nowMs' | 'monotonicMs'>, log: Pick<Logger, 'error'>) {
    this.#clock = clock
    this.#log = log
    this.#offsetMs = clock.nowMs() - clock.monotonicMs()
  }

  /** Whether what is old by the wall clock may be deleted. Asked at every round: a jump is what has happened since the last one. */
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
