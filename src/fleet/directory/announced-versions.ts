// Versions of the directory that the database announced and that this host has not read yet. Effects: timers.

import { type Clock, pause } from '../../base/clock.ts'
import type { Announcement } from '../replica/announcement.codec.ts'
import type { Copy } from './copy.ts'

/** How long to wait for a further announcement before reading changes, because they often come in bursts. */
const gatherMs = 25
/** Longest time from the first announcement until changes are read. */
const gatherMaxMs = 100
/** Least time between two reads of versions that do not concern this host, because every host reads every version. */
const restMs = 500

type AnnouncedVersionsDeps = {
  readonly hostId: string
  readonly copy: Pick<Copy, 'mark' | 'catchUp'>
  readonly clock: Clock
  readonly signal: AbortSignal
}

export class AnnouncedVersions {
  readonly wake = createWake()
  readonly #deps: AnnouncedVersionsDeps
  /** Wakes for versions that concern this host. */
  readonly #urgent = createWake()
  #version: number | null = null
  #count = 0
  #restsUntilMs = 0

  constructor(deps: AnnouncedVersionsDeps) {
    this.#deps = deps
  }

  /** `announcement`: null if there may be changes that were not announced. */
  announce(announcement: Announcement | null): void {
    const { version, hostIds } = announcement ?? { version: Number.POSITIVE_INFINITY, hostIds: null }
    this.#count += 1
    this.#version = Math.max(this.#version ?? 0, version)
    if (hostIds === null || hostIds.includes(this.#deps.hostId)) this.#urgent.wake()
    this.wake.wake()
  }

  /** Reads announced changes together. No effect if the copy already has them, as after this host's own changes. */
  async read(): Promise<void> {
    const { copy, clock, signal } = this.#deps
    if (this.#version !== null) {
      const waitMs = this.#restsUntilMs - clock.monotonicMs()
      if (waitMs > 0) await this.#urgent.within(clock, waitMs, signal)
      await this.#pauseUntilQuiet()
    }
    this.wake.clear()
    this.#urgent.clear()
    const isHere = this.#version !== null && this.#version <= copy.mark().version
    this.#version = null
    if (isHere) return
    await copy.catchUp()
    this.#restsUntilMs = clock.monotonicMs() + restMs
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
