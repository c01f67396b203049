// Links that log a person in once and expire soon. State in memory: a restart of the daemon invalidates them.

import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Person } from '../person.ts'
import { drawToken, tokenDigest } from './token.ts'

/** Time for a person to open a link. */
export const linkLifeMs = 60_000
/**
 * Unopened links of one person; the oldest is dropped. Share: this limit is the share of one person; only
 * administrators make links.
 */
const linksPerActorMax = 8

type Link = { readonly person: Person; readonly endsAtMs: number }

export class Links {
  readonly #deps: { readonly clock: Pick<Clock, 'monotonicMs'>; readonly random: RandomBytes }
  /** Links by digest, oldest first. */
  readonly #open = new Map<string, Link>()

  constructor(deps: { readonly clock: Pick<Clock, 'monotonicMs'>; readonly random: RandomBytes }) {
    this.#deps = deps
  }

  /** Creates a link and returns its secret. */
  make(person: Person): string {
    const nowMs = this.#deps.clock.monotonicMs()
    this.#forget(nowMs)
    const own = [...this.#open].filter(([, link]) => link.person.actor === person.actor)
    for (const [digest] of own.slice(0, Math.max(0, own.length + 1 - linksPerActorMax))) this.#open.delete(digest)
    const { text, digest } = drawToken(this.#deps.random)
    this.#open.set(digest, { person, endsAtMs: nowMs + linkLifeMs })
    return text
  }

  /** Returns the person of a link and removes the link. Null if it does not exist or has expired. */
  take(token: string): Person | null {
    this.#forget(this.#deps.clock.monotonicMs())
    const digest = tokenDigest(token)
    const link = digest === null ? undefined : this.#open.get(digest)
    if (digest === null || link === undefined) return null
    this.#open.delete(digest)
    return link.person
  }

  /** Invalidates the links of an actor, or all links if null. */
  clear(actor: string | null): void {
    for (const [digest, { person }] of this.#open) {
      if (actor === null || person.actor === actor) this.#open.delete(digest)
    }
  }

  get size(): number {
    return this.#open.size
  }

  #forget(nowMs: number): void {
    for (const [digest, { endsAtMs }] of this.#open) if (nowMs >= endsAtMs) this.#open.delete(digest)
  }
}
