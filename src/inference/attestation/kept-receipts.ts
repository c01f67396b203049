// Receipts of responses, kept for a while for the keys that asked. State in memory; they end with this process.
//
// Receipts and their bytes are bounded in all. At the bound the organization that holds most loses its oldest, so a
// heavy user evicts only its own receipts while others hold less.

import type { Clock } from '../../base/clock.ts'

export type KeptReceiptsLimits = {
  /** 0: none is kept. */
  readonly retentionMs: number
  readonly countMax: number
  /** Bound of all receipts; each of their characters is a byte. */
  readonly bytesMax: number
}

export type KeptReceiptsDeps = { readonly clock: Pick<Clock, 'monotonicMs'>; readonly limits: KeptReceiptsLimits }

type Kept = {
  readonly organizationId: string
  /** Digest of the key that asked: no other key may read the receipt. */
  readonly keyDigest: string
  readonly receipt: string
  readonly endsAtMs: number
}
type Share = { bytes: number; readonly ids: Set<string> }

export class KeptReceipts {
  readonly #clock: KeptReceiptsDeps['clock']
  readonly #limits: KeptReceiptsLimits
  /** By request, in the order in which they came, as in each share. */
  readonly #kept = new Map<string, Kept>()
  readonly #shares = new Map<string, Share>()
  #bytes = 0

  constructor({ clock, limits }: KeptReceiptsDeps) {
    this.#clock = clock
    this.#limits = limits
  }

  get retentionMs(): number {
    return this.#limits.retentionMs
  }

  get size(): { readonly count: number; readonly bytes: number } {
    return { count: this.#kept.size, bytes: this.#bytes }
  }

  /** `requestId`: unique. */
  keep(requestId: string, { organizationId, keyDigest, receipt }: Omit<Kept, 'endsAtMs'>): void {
    const { retentionMs, countMax, bytesMax } = this.#limits
    const nowMs = this.#clock.monotonicMs()
    this.#dropEnded(nowMs)
    if (retentionMs === 0) return
    this.#kept.set(requestId, { organizationId, keyDigest, receipt, endsAtMs: nowMs + retentionMs })
    const share = this.#shares.get(organizationId) ?? { bytes: 0, ids: new Set() }
    this.#shares.set(organizationId, share)
    share.ids.add(requestId)
    share.bytes += receipt.length
    this.#bytes += receipt.length
    while (this.#kept.size > countMax || this.#bytes > bytesMax) this.#dropOldestOfLargest()
  }

  /** Null: none of such a request, or another key asked. */
  find(requestId: string, keyDigest: string): string | null {
    this.#dropEnded(this.#clock.monotonicMs())
    const kept = this.#kept.get(requestId)
    return kept === undefined || kept.keyDigest !== keyDigest ? null : kept.receipt
  }

  #dropEnded(nowMs: number): void {
    for (const [id, { endsAtMs }] of this.#kept) {
      if (endsAtMs > nowMs) return
      this.#drop(id)
    }
  }

  #dropOldestOfLargest(): void {
    let largest: Share | null = null
    for (const share of this.#shares.values()) if (largest === null || share.bytes > largest.bytes) largest = share
    const [oldest] = largest?.ids ?? []
    if (oldest !== undefined) this.#drop(oldest)
  }

  #drop(requestId: string): void {
    const kept = this.#kept.get(requestId)
    const share = kept === undefined ? undefined : this.#shares.get(kept.organizationId)
    if (kept === undefined || share === undefined) return
    this.#kept.delete(requestId)
    this.#bytes -= kept.receipt.length
    share.bytes -= kept.receipt.length
    share.ids.delete(requestId)
    if (share.ids.size === 0) this.#shares.delete(kept.organizationId)
  }
}
