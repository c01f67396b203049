// Requests that wait for a place at an upstream that serves one model: by organization, then key, in order of arrival.
// Pure: state in memory.

import type { Owner, UpstreamSlots } from './fair-share.ts'

/** Waiters of one key, in order of arrival. */
type Line<W> = { readonly owner: Owner; readonly waiters: Set<W> }

export class Waiters<W extends { readonly owner: Owner }> {
  readonly #organizations = new Map<string, Map<string, Line<W>>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  *[Symbol.iterator](): Generator<W> {
    for (const lines of this.#organizations.values()) for (const { waiters } of lines.values()) yield* waiters
  }

  add(waiter: W): void {
    const { owner } = waiter
    const lines = this.#organizations.get(owner.organizationId) ?? new Map<string, Line<W>>()
    this.#organizations.set(owner.organizationId, lines)
    const line = lines.get(owner.keyPrefix) ?? { owner, waiters: new Set<W>() }
    lines.set(owner.keyPrefix, line)
    line.waiters.add(waiter)
    this.#size += 1
  }

  delete(waiter: W): void {
    const { organizationId, keyPrefix } = waiter.owner
    const lines = this.#organizations.get(organizationId)
    const line = lines?.get(keyPrefix)
    if (line?.waiters.delete(waiter) !== true) return
    this.#size -= 1
    if (line.waiters.size === 0) lines?.delete(keyPrefix)
    if (lines?.size === 0) this.#organizations.delete(organizationId)
  }

  /** The waiter that these places are due to next, among those that `mayTake` one. */
  next(places: Pick<UpstreamSlots, 'compare'>, mayTake: (waiter: W) => boolean): W | null {
    let next: W | null = null
    for (const lines of this.#organizations.values()) {
      for (const { owner, waiters } of lines.values()) {
        if (next !== null && places.compare(owner, next.owner) >= 0) continue
        next = waiters.values().find(mayTake) ?? next
      }
    }
    return next
  }

  /**
   * The waiter that gives way to another request of `owner`: the newest of the key that has most, in the organization
   * that has most. Null: that is the new request itself.
   */
  givesWay({ organizationId, keyPrefix }: Owner): W | null {
    const organization = largest(this.#organizations, organizationId, lines =>
      lines.values().reduce((sum, { waiters }) => sum + waiters.size, 0),
    )
    const lines = this.#organizations.get(organization) ?? new Map<string, Line<W>>()
    const isOwn = organization === organizationId
    const key = largest(lines, isOwn ? keyPrefix : null, ({ waiters }) => waiters.size)
    if (isOwn && key === keyPrefix) return null
    return [...(lines.get(key)?.waiters ?? [])].at(-1) ?? null
  }
}

/** The name with most; `own` has one more, and counts as the largest among equals. */
function largest<T>(all: ReadonlyMap<string, T>, own: string | null, sizeOf: (item: T) => number): string {
  const ownItem = own === null ? undefined : all.get(own)
  let most = { name: own ?? '', size: own === null ? 0 : (ownItem === undefined ? 0 : sizeOf(ownItem)) + 1 }
  for (const [name, item] of all) if (sizeOf(item) > most.size) most = { name, size: sizeOf(item) }
  return most.name
}
