// Requests that wait for an upstream of one model: by organization, then key, in order of arrival. Pure: state in
// memory.
//
// A queue may hold many thousands. Only iteration and `next` visit each line of a key; all other operations cost the
// same for any length, or grow with the number of different counts, which is below the square root of twice the length.

import type { Owner, UpstreamSlots } from './fair-share.ts'

/** Waiters of one key in order of arrival, by number: those between `first` and `next` that have not left. */
type Line<W> = { readonly owner: Owner; waiters: Map<number, W>; first: number; next: number }
type Organization<W> = { readonly lines: Map<string, Line<W>>; readonly keys: Tally }

/**
 * A longer line is renumbered only when one number in eight is missing, so that each departure costs little. No
 * share: length of one line; longer lines are not refused.
 */
const exactLineMax = 64
const missingParts = 8

export class Waiters<W extends { readonly owner: Owner }> {
  readonly #organizations = new Map<string, Organization<W>>()
  readonly #tally = new Tally()
  readonly #numbers = new Map<W, number>()

  get size(): number {
    return this.#numbers.size
  }

  *[Symbol.iterator](): Generator<W> {
    for (const { lines } of this.#organizations.values()) {
      for (const { waiters } of lines.values()) yield* waiters.values()
    }
  }

  add(waiter: W): void {
    const { owner } = waiter
    const { organizationId, keyPrefix } = owner
    const organization = this.#organizations.get(organizationId) ?? { lines: new Map(), keys: new Tally() }
    this.#organizations.set(organizationId, organization)
    const { lines, keys } = organization
    const line = lines.get(keyPrefix) ?? { owner, waiters: new Map<number, W>(), first: 0, next: 0 }
    lines.set(keyPrefix, line)
    this.#append(line, waiter)
    keys.change(keyPrefix, 1)
    this.#tally.change(organizationId, 1)
  }

  delete(waiter: W): void {
    const { organizationId, keyPrefix } = waiter.owner
    const organization = this.#organizations.get(organizationId)
    const line = organization?.lines.get(keyPrefix)
    const number = this.#numbers.get(waiter)
    if (organization === undefined || line === undefined || number === undefined) return
    this.#numbers.delete(waiter)
    line.waiters.delete(number)
    organization.keys.change(keyPrefix, -1)
    this.#tally.change(organizationId, -1)
    if (line.waiters.size > 0) this.#closeGaps(line)
    else organization.lines.delete(keyPrefix)
    if (organization.lines.size === 0) this.#organizations.delete(organizationId)
  }

  /** Returns the waiter that gets the next free slot, among those that `mayTake` one. */
  next(places: Pick<UpstreamSlots, 'compare'>, mayTake: (waiter: W) => boolean): W | null {
    let next: W | null = null
    for (const { lines } of this.#organizations.values()) {
      for (const { owner, waiters } of lines.values()) {
        if (next !== null && places.compare(owner, next.owner) >= 0) continue
        next = waiters.values().find(mayTake) ?? next
      }
    }
    return next
  }

  /**
   * Returns the waiter to drop for another request of `owner`: the newest of the key with the most, in the organization
   * with the most. Null if that is the new request itself.
   */
  givesWay({ organizationId, keyPrefix }: Owner): W | null {
    const name = this.#tally.largest(organizationId)
    const isOwn = name === organizationId
    const organization = this.#organizations.get(name)
    const key = organization?.keys.largest(isOwn ? keyPrefix : null)
    if (organization === undefined || key === undefined || (isOwn && key === keyPrefix)) return null
    const line = organization.lines.get(key)
    return line?.waiters.get(line.next - 1) ?? null
  }

  /**
   * Returns 1 for the first waiter of its key; in a long line the result may be up to an eighth too high. Null if the
   * waiter is not in this queue.
   */
  rank(waiter: W): number | null {
    const number = this.#numbers.get(waiter)
    return number === undefined ? null : number - (this.#lineOf(waiter.owner)?.first ?? 0) + 1
  }

  /** Returns the number of waiters of this key. */
  count(owner: Owner): number {
    return this.#lineOf(owner)?.waiters.size ?? 0
  }

  /** Returns the number of waiters of other keys of the same organization, at most `most` of each key. */
  ofOtherKeys({ organizationId, keyPrefix }: Owner, most: number): number {
    return this.#organizations.get(organizationId)?.keys.others(keyPrefix, most) ?? 0
  }

  /** Returns the number of waiters of other organizations, at most `most` of each. */
  ofOtherOrganizations({ organizationId }: Owner, most: number): number {
    return this.#tally.others(organizationId, most)
  }

  #lineOf({ organizationId, keyPrefix }: Owner): Line<W> | undefined {
    return this.#organizations.get(organizationId)?.lines.get(keyPrefix)
  }

  #append(line: Line<W>, waiter: W): void {
    this.#numbers.set(waiter, line.next)
    line.waiters.set(line.next, waiter)
    line.next += 1
  }

  /** Moves the ends of a line so that both are waiters. */
  #closeGaps(line: Line<W>): void {
    const { waiters } = line
    while (!waiters.has(line.first)) line.first += 1
    while (!waiters.has(line.next - 1)) line.next -= 1
    const missing = line.next - line.first - waiters.size
    if (missing === 0 || (waiters.size > exactLineMax && missing * missingParts <= waiters.size)) return
    Object.assign(line, { waiters: new Map<number, W>(), first: 0, next: 0 })
    for (const waiter of waiters.values()) this.#append(line, waiter)
  }
}

/** Counts by name, and the names of each count. */
class Tally {
  readonly #counts = new Map<string, number>()
  readonly #names = new Map<number, Set<string>>()
  #most = 0

  change(name: string, by: 1 | -1): void {
    const before = this.#counts.get(name) ?? 0
    const now = before + by
    const left = this.#names.get(before)
    left?.delete(name)
    if (left?.size === 0) this.#names.delete(before)
    if (now === 0) this.#counts.delete(name)
    else {
      this.#counts.set(name, now)
      this.#names.set(now, (this.#names.get(now) ?? new Set()).add(name))
    }
    if (now > this.#most || !this.#names.has(this.#most)) this.#most = now
  }

  /** Returns the name with the highest count. `own` has one more, and is preferred among equals. */
  largest(own: string | null): string {
    if (own !== null && (this.#counts.get(own) ?? 0) + 1 >= this.#most) return own
    return this.#names.get(this.#most)?.values().next().value ?? ''
  }

  /** Returns the sum of the counts of the other names, each at most `most`. */
  others(own: string, most: number): number {
    let sum = -Math.min(this.#counts.get(own) ?? 0, most)
    for (const [count, names] of this.#names) sum += names.size * Math.min(count, most)
    return sum
  }
}
