// Calls that were taken, for as long as their time is accepted: none is taken twice. Pure: state in memory.

import type { Call } from './call.codec.ts'

/** How far the clocks of two hosts may be apart. */
export const apartMsMax = 30_000

/**
 * For each host that calls; the fleet's own hosts alone get that far.
 * No share: limits the calls of one host within a minute; hosts are the operator's.
 */
const callsPerHostMax = 65_536

export class SeenCalls {
  /** By caller: when each number may be forgotten, the oldest first. */
  readonly #seen = new Map<string, Map<string, number>>()
  readonly #sinceMs: number

  /** `nowMs`: when this process begins. It does not know which calls the one before it took. */
  constructor(nowMs: number) {
    this.#sinceMs = nowMs
  }

  /** The call's signature is good. */
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
