// Leases shares of keys' rate limits to gateways of this host. Effects: one statement to PostgreSQL per request; keeps
// the rows of other gateways in memory, to compute the next targets.

import type { Amounts, ShareAnswer, ShareAsk, ShareGrant } from '../../contract/vm/shares.ts'
import type { Postgres } from '../postgres.ts'
import { boundedBy, grantOf, isGivenBack, type ShareRow, targetOf } from './grants.plan.ts'
import { endShares, type RequestedShare, renewShares } from './shares.query.ts'

/**
 * How long a gateway may use its shares after its last renewal. A longer time covers longer outages of the database; a
 * shorter time frees a dead host's shares sooner, after this and a minute.
 */
export const sharesGoodMs = 300_000

/**
 * Limit on gateways of this host whose view is cached; the newest are kept. No share: gateways of this host; the oldest
 * view is dropped and read again.
 */
const viewsMax = 8

export type ShareAllocatorDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly hostId: string
  /** Returns a key's limits; zeros for a key that is no longer valid, null for a key that never existed. */
  readonly limitsOf: (keyPrefix: string) => Amounts | null
}

/** Other gateways' rows by key, as of the last response. */
type View = Map<string, readonly ShareRow[]>

export class ShareAllocator {
  readonly #deps: ShareAllocatorDeps
  /** Views by gateway. */
  readonly #views = new Map<string, View>()

  constructor(deps: ShareAllocatorDeps) {
    this.#deps = deps
  }

  /**
   * Handles a gateway's renewal; its turns increase. Its own numbers only affect its host's share; the limits are the
   * directory's. Fault `fleet.unavailable`.
   */
  async renew(member: string, turn: number, asks: readonly ShareAsk[]): Promise<ShareAnswer> {
    const { postgres, hostId, limitsOf } = this.#deps
    const view = this.#viewOf(member)
    const shares: RequestedShare[] = []
    for (const given of asks) {
      const limits = limitsOf(given.keyPrefix)
      if (limits === null) continue
      const ask = boundedBy(limits, given)
      const own: ShareRow = { ...ask, id: `${hostId} ${member}`, isOwn: true, silentMs: 0 }
      shares.push({ ask, limits, target: targetOf(limits, own, view.get(ask.keyPrefix)) })
    }
    const rows = await renewShares(postgres, { hostId, member, turn, goodMs: sharesGoodMs, shares })
    const isLate = rows.length === 0 && shares.length > 0
    const byKey = Map.groupBy(rows, ({ keyPrefix }) => keyPrefix)
    const grants = shares.flatMap(({ ask, limits }): ShareGrant[] => {
      const all = byKey.get(ask.keyPrefix) ?? []
      const own = all.find(({ isOwn }) => isOwn)
      if (own === undefined) return []
      const others = all.filter(row => row !== own)
      if (isGivenBack(ask)) view.delete(ask.keyPrefix)
      else view.set(ask.keyPrefix, others)
      return [grantOf(limits, own, others)]
    })
    return { goodMs: isLate ? 0 : sharesGoodMs, grants }
  }

  /** Ends the shares of a gateway that has stopped. Fault `fleet.unavailable`. */
  async end(member: string): Promise<void> {
    this.#views.delete(member)
    await endShares(this.#deps.postgres, { hostId: this.#deps.hostId, ended: member, otherThan: '' })
  }

  /** Ends the shares of all gateways of this host except this one. Fault `fleet.unavailable`. */
  async endOthers(member: string): Promise<void> {
    await endShares(this.#deps.postgres, { hostId: this.#deps.hostId, ended: null, otherThan: member })
  }

  #viewOf(member: string): View {
    const known = this.#views.get(member)
    if (known !== undefined) return known
    for (const oldest of this.#views.keys()) if (this.#views.size >= viewsMax) this.#views.delete(oldest)
    const view: View = new Map()
    this.#views.set(member, view)
    return view
  }
}
