// How old things are whose beginning is on record. A wall clock that is set while we look on makes nothing older or younger: only the first look goes by
// it, the others go by the monotonic clock. Pure but for the clock.

import type { Clock } from '../clock.ts'

type Looked = { readonly sinceMs: number; readonly ageMs: number; readonly atMs: number }

export class Ages {
  readonly #clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly #looked = new Map<string, Looked>()

  constructor(clock: Pick<Clock, 'nowMs' | 'monotonicMs'>) {
    this.#clock = clock
  }

  /** Of what has been so since `sinceMs` by the wall clock; 0 for what begins in the future. */
  ageMs(key: string, sinceMs: number): number {
    const nowMs = this.#clock.monotonicMs()
    const looked = this.#looked.get(key)
    if (looked?.sinceMs === sinceMs) return looked.ageMs + nowMs - looked.atMs
    const ageMs = Math.max(0, this.#clock.nowMs() - sinceMs)
    this.#looked.set(key, { sinceMs, ageMs, atMs: nowMs })
    return ageMs
  }

  /** Forgets all others. */
  keepOnly(keys: Iterable<string>): void {
    const kept = new Set(keys)
    for (const key of this.#looked.keys()) if (!kept.has(key)) this.#looked.delete(key)
  }
}
