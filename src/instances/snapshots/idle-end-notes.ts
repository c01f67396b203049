// Snapshots before idle ends, in memory: which ends wait for room, and which had no snapshot. Effects: the clock.
//
// An owner who deletes older snapshots, or an operator who makes room, keeps the work of an unused instance. So its end
// waits for that, for a day: its hours are billed meanwhile, and its room is kept from others.

import type { Clock } from '../../base/clock.ts'
import { dayMs } from '../../base/time.ts'
import { LimitedFault } from '../../http/limited.ts'
import type { FailedEnds } from './problems.plan.ts'
import { isOfGuest, RoomFault, ShareFault, shortLine } from './refusals.ts'

/** `sinceMs`: end of the first attempt without room. `triedMs`: that of the last one, which others prevented or not. */
type Wait = { readonly sinceMs: number; readonly triedMs: number; readonly isLimited: boolean }

/** Time that an end waits for room or for others, from the first attempt without. */
const waitMs = dayMs
/** Pause between attempts: packing takes the VM's processor. */
const pauseMs = 15 * 60_000

export class IdleEndNotes {
  readonly #clock: Pick<Clock, 'monotonicMs' | 'nowMs'>
  /** By instance. */
  readonly #waits = new Map<string, Wait>()
  #failed: FailedEnds | null = null

  constructor(clock: Pick<Clock, 'monotonicMs' | 'nowMs'>) {
    this.#clock = clock
  }

  /** Ends without a snapshot; null if there are none since the last one with. */
  get failed(): FailedEnds | null {
    return this.#failed
  }

  /** Reports whether an attempt is due, for an instance that the host finds idle. */
  isDue(instanceId: string): boolean {
    const wait = this.#waits.get(instanceId)
    return wait === undefined || wait.isLimited || this.#clock.monotonicMs() - wait.triedMs >= pauseMs
  }

  /** Notes that an instance is in use: its next idle end waits for a whole day again. */
  used(instanceId: string): void {
    this.#waits.delete(instanceId)
  }

  /**
   * Notes the result of an attempt, which may have taken hours; null for a snapshot. Returns how long the idle end
   * waits: 0 for not at all. An attempt that others prevented is repeated without a pause.
   */
  note(instanceId: string, failure: Error | null): number {
    const nowMs = this.#clock.monotonicMs()
    // Only the age proves that a wait has ended: an attempt of another instance may be under way.
    for (const [id, { sinceMs }] of this.#waits)
      if (id !== instanceId && nowMs - sinceMs > 2 * waitMs) this.#waits.delete(id)
    const sinceMs = this.#waits.get(instanceId)?.sinceMs ?? nowMs
    const isLimited = failure instanceof LimitedFault
    const leftMs = isLimited || failure instanceof RoomFault ? sinceMs + waitMs - nowMs : 0
    if (leftMs > 0) {
      this.#waits.set(instanceId, { sinceMs, triedMs: nowMs, isLimited })
      return leftMs
    }
    this.#waits.delete(instanceId)
    this.#count(failure)
    return 0
  }

  /** Counts ends without a snapshot, except where the cause is the organization's or in the VM. */
  #count(failure: Error | null): void {
    if (failure === null) this.#failed = null
    if (failure === null || failure instanceof ShareFault || isOfGuest(failure)) return
    const nowMs = this.#clock.nowMs()
    const { count, sinceMs } = this.#failed ?? { count: 0, sinceMs: nowMs }
    this.#failed = { count: count + 1, sinceMs, lastMs: nowMs, reason: shortLine(failure.message) }
  }
}
