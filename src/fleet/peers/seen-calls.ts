// Accepted calls, remembered while their time is accepted, so that none is accepted twice. Pure: state in memory.

import type { Call } from './call.codec.ts'

/** How far the clocks of two hosts may differ. */
export const apartMsMax = 30_000

/**
 * Limit on the calls of one host; only the fleet's own hosts get this far. No share: limits the calls of one host
 * within a minute; hosts are the operator's.
 */
const callsPerHostMax = 65_536

export class SeenCalls {
  /** By caller, oldest first: when each number may be forgotten. */
  readonly #seen = new Map<string, Map<string, number>>()
  readonly #sinceMs: number

  /** `nowMs`: start of this process. Calls from before are rejected, because it cannot know which were accepted. */
  constructor(nowMs: number) {
    this.#sinceMs = nowMs
  }

  /** Accepts a call with a valid signature. Returns null, or why it is rejected. */
  take({ from, atMs, nonce }: Call, nowMs: number): 'clock' | 'replay' | 'busy' | null {
    if (Math.abs(nowMs - atMs) > apartMsMax || atMs < this.#sinceMs) return 'clock'
    const seen = this.#seen.get(from) ?? new Map<string, number>()
    this.#seen.set(from, seen)
    for (const [known, untilMs] of seen) {
      if (untilMs >= nowMs) break
      seen.delete(known)
    }
    if (seen.has(nonce)) return 'replay'
    if (seen.size >= callsPerHostMax) return 'busy'
    seen.set(nonce, nowMs + 2 * apartMsMax)
    return null
  }
}
