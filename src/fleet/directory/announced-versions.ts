// Versions of the directory that the database announced and that this host has not read yet. Effects: timers.

import { type Clock, pause } from '../../base/clock.ts'
import type { Copy } from './copy.ts'

/** How long to wait for a further announcement before reading changes, because they often come in bursts. */
const gatherMs = 25
/** Longest time from the first announcement until changes are read. */
const gatherMaxMs = 100

type AnnouncedVersionsDeps = {
  readonly copy: Pick<Copy, 'mark' | 'catchUp'>
  readonly clock: Pick<Clock, 'sleep'>
  readonly signal: AbortSignal
}

export class AnnouncedVersions {
  readonly wake = createWake()
  readonly #deps: AnnouncedVersionsDeps
  #version: number | null = null
  #count = 0

  constructor(deps: AnnouncedVersionsDeps) {
    this.#deps = deps
  }

  announce(version: number | null): void {
    this.#count += 1
    this.#version = Math.max(this.#version ?? 0, version ?? Number.POSITIVE_INFINITY)
    this.wake.wake()
  }

  /** Reads announced changes together. No effect if the copy already has them, as after this host's own changes. */
  async read(): Promise<void> {
    const { copy } = this.#deps
    if (this.#version !== null) await this.#pauseUntilQuiet()
    this.wake.clear()
    const isHere = this.#version !== null && this.#version <= copy.mark().version
    this.#version = null
    if (!isHere) await copy.catchUp()
  }

  async #pauseUntilQuiet(): Promise<void> {
    const { clock, signal } = this.#deps
    for (let waitedMs = 0, seen = -1; seen !== this.#count && waitedMs < gatherMaxMs; waitedMs += gatherMs) {
      seen = this.#count
      await pause(clock, gatherMs, signal)
    }
  }
}

export type Wake = {
  readonly wake: () => void
  /**
   * Resolves at the next wake, or at once if there was one since the last `clear`. Resolves at the latest after `ms`,
   * or when the signal is aborted.
   */
  readonly within: (clock: Clock, ms: number, signal: AbortSignal) => Promise<void>
  /** Discards previous wakes. */
  readonly clear: () => void
}

export function createWake(): Wake {
  let isDue = false
  let alarm: AbortController | null = null
  return {
    wake: () => {
      isDue = true
      alarm?.abort()
    },
    within: async (clock, ms, signal) => {
      alarm = new AbortController()
      if (!isDue) await pause(clock, ms, AbortSignal.any([signal, alarm.signal]))
      alarm = null
      isDue = false
    },
    clear: () => {
      isDue = false
    },
  }
}
