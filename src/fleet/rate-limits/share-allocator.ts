// Answers gateways of this host that ask for parts of keys' limits. Effects: one statement to PostgreSQL for each
// question; keeps the rows of other gateways in memory, by which the next targets are set.

import type { Amounts, ShareAnswer, ShareAsk, ShareGrant } from '../../contract/vm/shares.ts'
import type { Postgres } from '../postgres.ts'
import { boundedBy, grantOf, isGivenBack, type ShareRow, targetOf } from './grants.plan.ts'
import { endShares, type RequestedShare, renewShares } from './shares.query.ts'

/**
 * A gateway goes on with its shares for so long after it asked. Longer: an outage of the database may last as long.
 * Shorter: what a dead host had is back sooner, after this and a minute.
 */
export const sharesGoodMs = 300_000

/**
 * Gateways whose view is kept: of this host, the newest.
 * No share: gateways of this host; the oldest view is dropped and read again.
 */
const viewsMax = 8

export type ShareAllocatorDeps = {
  readonly postgres: Pick<Postgres, 'query'>
  readonly hostId: string
  /** The terms of a key; zeros for one that is not good any more, null for one that never was. */
  readonly limitsOf: (keyPrefix: string) => Amounts | null
}

/** Other gateways' rows by key, as of the last answer. */
type View = Map<string, readonly ShareRow[]>

export class ShareAllocator {
  readonly #deps: ShareAllocatorDeps
  /** By gateway. */
  readonly #views = new Map<string, View>()

  constructor(deps: ShareAllocatorDeps) {
    this.#deps = deps
  }

  /**
   * One question of a gateway, whose turns rise. Its own numbers count for this host's part alone; the limits are those
   * of the directory. Fault `fleet.unavailable`.
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

  /** This gateway has ended. Fault `fleet.unavailable`. */
  async end(member: string): Promise<void> {
    this.#views.delete(member)
    await endShares(this.#deps.postgres, { hostId: this.#deps.hostId, ended: member, otherThan: '' })
  }

  /** All gateways that this host had have ended, but for this one. Fault `fleet.unavailable`. */
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
