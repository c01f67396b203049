// Decides which held VM is taken first, and which are surplus. Pure.

/** Row of a held VM, with the fields that every owner stores. */
export type HeldRow = {
  readonly vmId: string
  /** Digest of the image that it was launched from. */
  readonly imageDigest: string
  /** Launch settings other than the image, as text. */
  readonly shape: string
}

/** The owner's judgement of a row. */
export type HeldState =
  /** Can be taken. Rank 0 has progressed furthest. */
  | { readonly kind: 'held'; readonly rank: number }
  /** Reserved: neither taken nor counted. */
  | { readonly kind: 'reserved' }
  /** The row is deleted and the VM stays, because a caller has taken it. */
  | { readonly kind: 'taken' }
  /** The VM is dismissed. */
  | { readonly kind: 'unwanted'; readonly reason: string }
  /** The VM is dismissed, and the next one is started after a delay. */
  | { readonly kind: 'lost'; readonly reason: string }

/** Returns the VM that has progressed furthest; the oldest among equals. `ranked`: oldest first. */
export function furthest<T extends { readonly rank: number }>(ranked: Iterable<T>): T | null {
  let best: T | null = null
  for (const candidate of ranked) {
    if (best === null || candidate.rank < best.rank) best = candidate
    if (best.rank === 0) break
  }
  return best
}

/**
 * Returns the VMs above the wanted number: those with the least progress first, then the newest. `ranked`: oldest
 * first.
 */
export function surplus<T extends { readonly rank: number }>(ranked: readonly T[], wanted: number): T[] {
  return ranked
    .toReversed()
    .toSorted((a, b) => b.rank - a.rank)
    .slice(0, Math.max(0, ranked.length - wanted))
}
