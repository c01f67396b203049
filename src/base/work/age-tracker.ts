// Ages of things whose start is recorded, unaffected by later changes of the wall clock: only the first reading uses
// it, the others use the monotonic clock. Pure except for the clock.

import type { Clock } from '../clock.ts'

type Observation = { readonly sinceMs: number; readonly ageMs: number; readonly atMs: number }

export class AgeTracker {
  readonly #clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly #observed = new Map<string, Observation>()

  constructor(clock: Pick<Clock, 'nowMs' | 'monotonicMs'>) {
    this.#clock = clock
  }

  /** Age of `key`, whose start is `sinceMs` on the wall clock. 0 if that is in the future. */
  ageMs(key: string, sinceMs: number): number {
    const nowMs = this.#clock.monotonicMs()
    const looked = this.#observed.get(key)
    if (looked?.sinceMs === sinceMs) return looked.ageMs + nowMs - looked.atMs
    const ageMs = Math.max(0, this.#clock.nowMs() - sinceMs)
    this.#observed.set(key, { sinceMs, ageMs, atMs: nowMs })
    return ageMs
  }

  /** Forgets all others. */
  keepOnly(keys: Iterable<string>): void {
    const kept = new Set(keys)
    for (const key of this.#observed.keys()) if (!kept.has(key)) this.#observed.delete(key)
  }
}
