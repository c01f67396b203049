// Texts that are kept in memory for a while, for the keys that they belong to: receipts, responses. They end with this
// process.
//
// Count and bytes are bounded in all. At the bound the organization that holds most loses its oldest, so a heavy user
// evicts only its own texts while others hold less. One key may be bounded, too.

import type { Clock } from '../clock.ts'

export type TextCacheLimits = {
  /** 0: none is kept. */
  readonly retentionMs: number
  readonly countMax: number
  readonly bytesMax: number
  /** Bound of one key; undefined: no other bound than that of all. */
  readonly bytesPerKeyMax?: number
}

export type TextCacheDeps = { readonly clock: Pick<Clock, 'monotonicMs'>; readonly limits: TextCacheLimits }

/** `facts`: read without the text; small, since they do not count. Null for texts without any. */
export type NewText<Facts> = {
  readonly organizationId: string
  readonly keyDigest: string
  readonly text: string
  readonly facts: Facts
}

type CacheEntry<Facts> = {
  readonly organizationId: string
  /** Digest of the key: no other key may read the text. */
  readonly keyDigest: string
  readonly text: string
  readonly facts: Facts
  readonly bytes: number
  endsAtMs: number
}
type Share = { bytes: number; readonly ids: Set<string> }

export class TextCache<Facts = null> {
  readonly #clock: TextCacheDeps['clock']
  readonly #limits: TextCacheLimits
  /** In the order in which they end. */
  readonly #entries = new Map<string, CacheEntry<Facts>>()
  readonly #byOrganization = new Map<string, Share>()
  readonly #byKey = new Map<string, Share>()
  #bytes = 0

  constructor({ clock, limits }: TextCacheDeps) {
    this.#clock = clock
    this.#limits = limits
  }

  get retentionMs(): number {
    return this.#limits.retentionMs
  }

  get size(): { readonly count: number; readonly bytes: number } {
    return { count: this.#entries.size, bytes: this.#bytes }
  }

  /** `id`: unique. */
  keep(id: string, { organizationId, keyDigest, text, facts }: NewText<Facts>): void {
    const { retentionMs, countMax, bytesMax, bytesPerKeyMax = bytesMax } = this.#limits
    const nowMs = this.#clock.monotonicMs()
    this.#dropEnded(nowMs)
    if (retentionMs === 0) return
    const kept = { organizationId, keyDigest, text, facts, bytes: measureBytes(text), endsAtMs: nowMs + retentionMs }
    this.#entries.set(id, kept)
    const ofKey = add(this.#byKey, keyDigest, id, kept.bytes)
    add(this.#byOrganization, organizationId, id, kept.bytes)
    this.#bytes += kept.bytes
    while (ofKey.bytes > bytesPerKeyMax) this.#dropOldestOf(ofKey)
    while (this.#entries.size > countMax || this.#bytes > bytesMax) this.#dropOldestOf(this.#largest())
  }

  /** Null if there is none, or it belongs to another key. */
  find(id: string, keyDigest: string): string | null {
    return this.#find(id, keyDigest)?.text ?? null
  }

  /** The facts of a text, under the same conditions; its time stays as it is. */
  factsOf(id: string, keyDigest: string): Facts | null {
    return this.#find(id, keyDigest)?.facts ?? null
  }

  /** Like `find`; restarts its retention time. */
  findAndRenew(id: string, keyDigest: string): string | null {
    const kept = this.#find(id, keyDigest)
    if (kept === null) return null
    kept.endsAtMs = this.#clock.monotonicMs() + this.#limits.retentionMs
    this.#entries.delete(id)
    this.#entries.set(id, kept)
    for (const share of [this.#byKey.get(keyDigest), this.#byOrganization.get(kept.organizationId)]) {
      share?.ids.delete(id)
      share?.ids.add(id)
    }
    return kept.text
  }

  #find(id: string, keyDigest: string): CacheEntry<Facts> | null {
    this.#dropEnded(this.#clock.monotonicMs())
    const kept = this.#entries.get(id)
    return kept === undefined || kept.keyDigest !== keyDigest ? null : kept
  }

  #dropEnded(nowMs: number): void {
    for (const [id, { endsAtMs }] of this.#entries) {
      if (endsAtMs > nowMs) return
      this.#drop(id)
    }
  }

  #largest(): Share | null {
    let largest: Share | null = null
    for (const share of this.#byOrganization.values()) {
      if (largest === null || share.bytes > largest.bytes) largest = share
    }
    return largest
  }

  #dropOldestOf(share: Share | null): void {
    const [oldest] = share?.ids ?? []
    if (oldest !== undefined) this.#drop(oldest)
  }

  #drop(id: string): void {
    const kept = this.#entries.get(id)
    if (kept === undefined) return
    this.#entries.delete(id)
    this.#bytes -= kept.bytes
    remove(this.#byOrganization, kept.organizationId, id, kept.bytes)
    remove(this.#byKey, kept.keyDigest, id, kept.bytes)
  }
}

/** In memory: JavaScriptCore takes two bytes for each unit of a text with a character beyond Latin-1. */
export function measureBytes(text: string): number {
  return Buffer.byteLength(text) === text.length ? text.length : 2 * text.length
}

function add(shares: Map<string, Share>, name: string, id: string, bytes: number): Share {
  const share = shares.get(name) ?? { bytes: 0, ids: new Set() }
  shares.set(name, share)
  share.ids.add(id)
  share.bytes += bytes
  return share
}

function remove(shares: Map<string, Share>, name: string, id: string, bytes: number): void {
  const share = shares.get(name)
  if (share === undefined) return
  share.ids.delete(id)
  share.bytes -= bytes
  if (share.ids.size === 0) shares.delete(name)
}
