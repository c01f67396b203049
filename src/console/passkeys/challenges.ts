// Challenges that a passkey signs, or that a sign-in at an identity provider begins with. Stateless: issuing one takes
// no memory. Stores only used ones, among those with which a person signed in.
//
//   nonce, 16 bytes | end, milliseconds of the monotonic clock, 8 | HMAC-SHA256 over these and the purpose, 32

import { createHmac } from 'node:crypto'
import { equalConstantTime, fromBase64Url, toBase64Url } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'

const nonceBytes = 16
const headBytes = nonceBytes + 8
const macBytes = 32

/** Time for a person to find the passkey and to pass user verification. */
export const challengeLifeMs = 120_000
/**
 * Limit on used challenges that have not expired. No share: a known passkey or the identity provider has vouched for a
 * person with each, so strangers take none.
 */
const usedMax = 4_096

export type ChallengesDeps = { readonly clock: Pick<Clock, 'monotonicMs'>; readonly random: RandomBytes }

export class Challenges {
  readonly #deps: ChallengesDeps
  readonly #lifeMs: number
  /** New at each start of the daemon. */
  readonly #key: Uint8Array
  readonly #used = new Map<string, number>()

  constructor(deps: ChallengesDeps, lifeMs = challengeLifeMs) {
    this.#deps = deps
    this.#lifeMs = lifeMs
    this.#key = deps.random(32)
  }

  /** Issues a challenge that is valid only for `purpose`. */
  make(purpose: string): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(headBytes + macBytes)
    bytes.set(this.#deps.random(nonceBytes))
    new DataView(bytes.buffer).setFloat64(nonceBytes, this.#deps.clock.monotonicMs() + this.#lifeMs)
    bytes.set(this.#mac(bytes.subarray(0, headBytes), purpose), headBytes)
    return bytes
  }

  /** Reports whether a challenge (base64url) was issued here for this purpose, and is neither expired nor used. */
  isGood(text: string, purpose: string): boolean {
    const bytes = fromBase64Url(text)
    if (bytes === null || bytes.length !== headBytes + macBytes || this.#used.has(text)) return false
    const mac = this.#mac(bytes.subarray(0, headBytes), purpose)
    return equalConstantTime(mac, bytes.subarray(headBytes)) && this.#deps.clock.monotonicMs() < endOf(bytes)
  }

  /** Marks a challenge as used. Returns false if it already was, or there is no space to store it. */
  use(text: string): boolean {
    const nowMs = this.#deps.clock.monotonicMs()
    for (const [used, endMs] of this.#used) if (nowMs >= endMs) this.#used.delete(used)
    const bytes = fromBase64Url(text)
    if (bytes === null || this.#used.has(text) || this.#used.size >= usedMax) return false
    this.#used.set(toBase64Url(bytes), endOf(bytes))
    return true
  }

  #mac(head: Uint8Array, purpose: string): Uint8Array {
    return new Uint8Array(createHmac('sha256', this.#key).update(head).update(purpose).digest())
  }
}

function endOf(bytes: Uint8Array): number {
  return new DataView(bytes.buffer, bytes.byteOffset).getFloat64(nonceBytes)
}
