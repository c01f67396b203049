// Snapshots before idle ends, in memory: which ends wait for room, and which had no snapshot. Effects: the clock.
//
// An owner who deletes older snapshots, or an operator who makes room, keeps the work of an unused instance. So its end
// waits for that, for a day: its hours are billed meanwhile, and its room is kept from others.

import type { Clock } from '../../base/clock.ts'
import { dayMs } from '../../base/time.ts'
import type { FailedEnds } from './problems.plan.ts'
import { isOfGuest, RoomFault, ShareFault, shortLine } from './refusals.ts'

type Wait = { readonly sinceMs: number; readonly triedMs: number }

/** Time that an end waits for room, from the first attempt without. */
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

  /** Reports whether the last attempt found no room, and the next one is not due yet. */
  isPausing(instanceId: string): boolean {
    const wait = this.#waits.get(instanceId)
    return wait !== undefined && this.#clock.monotonicMs() - wait.triedMs < pauseMs
  }

  /** Notes the result of an attempt; null for a snapshot. Returns how long the idle end waits: 0 for not at all. */
  note(instanceId: string, failure: Error | null): number {
    const nowMs = this.#clock.monotonicMs()
    // An instance without an attempt for that long was used meanwhile, or has ended.
    for (const [id, { triedMs }] of this.#waits) if (nowMs - triedMs > 2 * pauseMs) this.#waits.delete(id)
    const sinceMs = this.#waits.get(instanceId)?.sinceMs ?? nowMs
    const leftMs = failure instanceof RoomFault ? sinceMs + waitMs - nowMs : 0
    if (leftMs > 0) {
      this.#waits.set(instanceId, { sinceMs, triedMs: nowMs })
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
