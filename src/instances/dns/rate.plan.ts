// Response rate limiting: how much of the DNS server one network prefix, and all together, may use. Pure: time and seed
// are arguments.
//
// UDP senders can forge their address. A prefix over its rate therefore gets a few short truncated responses ("use
// TCP"), which a resolver follows and a forger's victim ignores; the rest is dropped. A second limit applies to all
// prefixes together: above it everyone gets truncated responses, then none.

import { v6Groups } from './address.plan.ts'

export type RateSettings = {
  /** Responses per second to one prefix: /24 of IPv4, /56 of IPv6. */
  readonly perSecond: number
  readonly burst: number
  /** One in this many packets over the rate gets a truncated response. */
  readonly slip: number
  /** Limits on all prefixes together per window: on full responses, and on additional truncated ones. */
  readonly windowMs: number
  readonly perWindow: number
  readonly truncatedPerWindow: number
  /** Number of prefixes with their own counters, a power of two. Further prefixes share counters. */
  readonly prefixesMax: number
}

export const rateDefaults: RateSettings = {
  perSecond: 200,
  burst: 400,
  slip: 4,
  windowMs: 10,
  perWindow: 100,
  truncatedPerWindow: 200,
  /** Share: one seeded bucket for a /24 or /56; beyond the whole rate clients are sent to TCP. */
  prefixesMax: 16_384,
}

export type Admission = 'answer' | 'truncate' | 'drop'

/** One token bucket per prefix, in arrays of fixed size. */
export class RateLimiter {
  readonly #settings: RateSettings
  readonly #seed: number
  readonly #tokens: Float64Array
  readonly #atMs: Float64Array
  readonly #over: Uint8Array
  #windowEndsMs = 0
  #answersLeft = 0
  #truncatedLeft = 0

  /** The seed keeps strangers from choosing with whom they share a bucket. */
  constructor(settings: RateSettings, seed: number) {
    this.#settings = settings
    this.#seed = seed | 0
    this.#tokens = new Float64Array(settings.prefixesMax).fill(settings.burst)
    this.#atMs = new Float64Array(settings.prefixesMax)
    this.#over = new Uint8Array(settings.prefixesMax)
  }

  /** Decides on a message. `nowMs` is monotonic. */
  admit(address: string, nowMs: number): Admission {
    const { windowMs, perWindow, truncatedPerWindow } = this.#settings
    if (nowMs >= this.#windowEndsMs) {
      this.#windowEndsMs = nowMs + windowMs
      this.#answersLeft = perWindow
      this.#truncatedLeft = truncatedPerWindow
    }
    if (this.#answersLeft + this.#truncatedLeft <= 0) return 'drop'
    const standing = this.#standing(address, nowMs)
    if (standing === 'answer' && this.#answersLeft > 0) {
      this.#answersLeft -= 1
      return 'answer'
    }
    if (standing === 'drop' || this.#truncatedLeft <= 0) return 'drop'
    this.#truncatedLeft -= 1
    return 'truncate'
  }

  /** Decides by the prefix's own rate. */
  #standing(address: string, nowMs: number): Admission {
    const { perSecond, burst, slip, prefixesMax } = this.#settings
    const bucket = this.#hash(prefixOf(address)) & (prefixesMax - 1)
    const passedMs = Math.max(0, nowMs - (this.#atMs[bucket] ?? 0))
    const tokens = Math.min(burst, (this.#tokens[bucket] ?? 0) + (passedMs * perSecond) / 1000)
    this.#atMs[bucket] = nowMs
    this.#tokens[bucket] = tokens >= 1 ? tokens - 1 : tokens
    if (tokens >= 1) return 'answer'
    const over = ((this.#over[bucket] ?? 0) + 1) % slip
    this.#over[bucket] = over
    return over === 0 ? 'truncate' : 'drop'
  }

  #hash(prefix: string): number {
    let hash = this.#seed ^ 0x811c9dc5
    for (let i = 0; i < prefix.length; i += 1) hash = Math.imul(hash ^ prefix.charCodeAt(i), 0x01000193)
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d)
    return (hash ^ (hash >>> 12)) >>> 0
  }
}

/** Returns the prefix as text: the /24 of an IPv4 address (mapped into IPv6 or not), the /56 of an IPv6 address. */
export function prefixOf(address: string): string {
  const dot = address.lastIndexOf('.')
  if (dot !== -1) return address.slice(address.lastIndexOf(':') + 1, dot)
  const [a = 0, b = 0, c = 0, d = 0] = v6Groups(address)
  return [a, b, c, d >> 8].map(group => group.toString(16)).join(':')
}
