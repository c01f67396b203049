// How hosts divide one limit of a key. Pure: every host computes the same from the same rows.
//
// A share is a host's target, reached after its window has released the rest. The database ensures that no more than
// the limit is granted (migrations/first/0006-shares.ts).

export type Sharer = {
  readonly id: string
  readonly wanted: number
  /** Amount that would admit the next waiting request; 0 if none waits. */
  readonly least: number
  /** How long requests have been waiting without one being admitted. */
  readonly waitingMs: number
}

/** Smaller limits have no reserve, which would be a large part of them. */
const reservedFrom = 10
/** One part in this many is reserved for hosts that begin to use the key. */
const reservedOneOf = 20

/** Returns the reserve for hosts that begin to use the key, so that their first requests need not wait for others. */
export function reserveOf(limit: number): number {
  return limit < reservedFrom ? 0 : Math.ceil(limit / reservedOneOf)
}

/**
 * A host that has admitted nothing for this long takes precedence: two renewals, in which the usual division would
 * help.
 */
export const starvedMs = 4_000

/**
 * Returns the share of each sharer, in whole numbers with a sum of at most `limit`. Demands are met from the smallest,
 * and the rest is divided evenly. The sharer that has starved longest gets what its next request needs, even from the
 * reserve.
 */
export function planShares(limit: number, sharers: readonly Sharer[]): ReadonlyMap<string, number> {
  const ordered = sharers.toSorted((a, b) => (a.id < b.id ? -1 : 1))
  const divided = divide(limit - reserveOf(limit), ordered)
  const starved = longestStarved(limit, ordered)
  if (starved === null || starved.least <= (divided.get(starved.id) ?? 0)) return divided
  const others = ordered.filter(sharer => sharer !== starved)
  const left = limit - starved.least
  return new Map([[starved.id, starved.least], ...divide(Math.max(0, left - reserveOf(limit)), others)])
}

function longestStarved(limit: number, sharers: readonly Sharer[]): Sharer | null {
  let longest: Sharer | null = null
  for (const sharer of sharers) {
    const { least, waitingMs } = sharer
    if (least === 0 || least > limit || waitingMs < starvedMs) continue
    if (longest === null || waitingMs > longest.waitingMs) longest = sharer
  }
  return longest
}

/** Divides max-min fairly: no sharer gets more than its demand while another has less than its own. */
function divide(amount: number, sharers: readonly Sharer[]): Map<string, number> {
  const parts = new Map<string, number>()
  let left = amount
  const byWant = sharers.toSorted((a, b) => a.wanted - b.wanted)
  for (const [index, { id, wanted }] of byWant.entries()) {
    const part = Math.min(wanted, Math.floor(left / (byWant.length - index)))
    parts.set(id, part)
    left -= part
  }
  for (const [index, { id }] of sharers.entries()) {
    const part = Math.ceil(left / (sharers.length - index))
    parts.set(id, (parts.get(id) ?? 0) + part)
    left -= part
  }
  return parts
}
