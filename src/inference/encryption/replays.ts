// Refuses an encrypted body that was received before. Effects: through its dependencies.
//
// A bound body names the replay epoch that it was sealed in, and is refused once that epoch has ended. The marks of
// an epoch last as long as the epoch, so no bound body is accepted twice, regardless of their number and of the
// clock. A busy key can only shorten the epochs for all: its neighbors' bodies are refused as stale and sealed again.
//
// An unbound body (from a stock EHBP client) names no epoch. Its mark is kept for a while in its key's share: a key
// that sends very many evicts only its own marks, in any organization.

import { toHex } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { TextCache } from '../../base/work/text-cache.ts'

/** A body that was opened with an authenticated key. */
export type OpenedBody = {
  /** SHA-256 of the secret of the sender's key, in hexadecimal. */
  readonly keyDigest: string
  /** The request's id, used by a memory in another process. */
  readonly request: string
  /** Null for an unbound body. */
  readonly epoch: string | null
  /** Digest of encapsulated key and nonce. */
  readonly mark: string
}

/** `epoch` is the current one. */
export type ReplayVerdict = { readonly outcome: 'new' | 'seen' | 'stale'; readonly epoch: string }

/** Marks the body, and reports whether it was already marked. All processes of a gateway share one. */
export type CheckReplay = (body: OpenedBody) => ReplayVerdict | Promise<ReplayVerdict>

/**
 * Bodies until the epoch changes; 100 bytes each. Marks of two epochs are kept. No share: a busy key ends the epoch
 * for all clients, who seal once more.
 */
const epochBodiesMax = 65_536
/**
 * Unbound bodies of all keys; 400 bytes each.
 * Share: when full, the key with the most bodies loses its oldest.
 */
const unboundCountMax = 16_384
const unboundLimits = {
  retentionMs: 3_600_000,
  countMax: unboundCountMax,
  bytesMax: Number.POSITIVE_INFINITY,
} as const

type Epoch = { readonly id: string; readonly marks: Set<string> }

export class ReplayMemory {
  readonly #random: RandomBytes
  readonly #unbound: TextCache
  #present: Epoch
  #previous: Epoch | null = null
  #bodyCount = 0

  constructor({ clock, random }: { readonly clock: Pick<Clock, 'monotonicMs'>; readonly random: RandomBytes }) {
    this.#random = random
    this.#unbound = new TextCache({ clock, limits: unboundLimits })
    this.#present = this.#newEpoch()
  }

  /** The current epoch: 16 random bytes in hexadecimal. Not secret. */
  get epoch(): string {
    return this.#present.id
  }

  check({ keyDigest, epoch, mark }: OpenedBody): ReplayVerdict {
    const outcome = epoch === null ? this.#markUnbound(keyDigest, mark) : this.#mark(epoch, mark)
    return { outcome, epoch: this.epoch }
  }

  #mark(epoch: string, mark: string): ReplayVerdict['outcome'] {
    const named = [this.#present, this.#previous].find(kept => kept?.id === epoch)
    if (named == null) return 'stale'
    if (named.marks.has(mark)) return 'seen'
    named.marks.add(mark)
    this.#bodyCount += 1
    if (this.#bodyCount === epochBodiesMax) {
      this.#previous = this.#present
      this.#present = this.#newEpoch()
      this.#bodyCount = 0
    }
    return 'new'
  }

  #markUnbound(owner: string, mark: string): ReplayVerdict['outcome'] {
    // A copy may arrive under another key, so the mark is found by all keys; `organizationId` selects the share it
    // counts in.
    const all = ''
    if (this.#unbound.find(mark, all) !== null) return 'seen'
    this.#unbound.keep(mark, { organizationId: owner, keyDigest: all, text: '.', facts: null })
    return 'new'
  }

  #newEpoch(): Epoch {
    return { id: toHex(this.#random(16)), marks: new Set() }
  }
}
