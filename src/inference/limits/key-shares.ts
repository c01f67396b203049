// Shares of keys' limits that this gateway leases, if hosts of a fleet share them. Effects: calls the fleet, timers.
// State in memory, one entry per key in use.
//
// A share bounds what this gateway admits: requests and tokens of the last minute, and concurrent requests. It is
// lowered here before the fleet learns of it, and raised after the fleet has recorded it. Amounts of the last minute
// count until they leave the window. So all gateways together never admit more than the key's limit in any minute.

import { type Clock, onAbort, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import { type Amounts, NO_AMOUNTS, type RenewShares, type ShareAsk, type ShareGrant } from '../../contract/vm/shares.ts'
import type { Window } from '../../http/window.ts'
import type { Caller } from '../types.ts'
import { type Demand, KeyShare, type KeyUse } from './key-share.ts'

export type KeySharesDeps = {
  readonly renew: RenewShares
  /** Returns false if this gateway has all of each key's limits. */
  readonly isShared: () => boolean
  /** Maximum number of keys per request to the fleet. */
  readonly keysPerAskMax: number
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
  readonly log: Logger
}

const renewMs = 2_000
/** Least time between two requests, however many keys come into use. */
const gapMs = 100
/** Interval while requests wait for their first share. */
const waitingRenewMs = 500
const failedRenewMs = 1_000
/** Longest sleep between renewals. */
const longestPauseMs = 60_000
/** How long a request waits for a share that may arrive; then it is refused with Retry-After. */
export const shareWaitMs = 3_000
/** A request does not wait for more that would arrive later than this. */
const soonMs = 4_000
/**
 * Keys with shares at a time.
 * Share: a quarter for one organization; beyond it 429 until keys are idle for a minute.
 */
const keysMax = 4_096
const keysParts = 4
/**
 * Requests that wait.
 * Share: an eighth for one key; beyond it requests are refused with Retry-After.
 */
const waitersMax = 2_048
const waitersParts = 8

export type SharedLimitsView = {
  /** Number of keys of whose limits this gateway has a share. */
  readonly keys: number
  /** Number of requests of such keys since the start. */
  readonly admitted: number
  readonly refused: number
  /** Milliseconds for which the shares remain valid without another response of the fleet. */
  readonly goodMs: number
}

const DIMENSIONS = [0, 1, 2] as const
type Dimension = (typeof DIMENSIONS)[number]

export class KeyShares {
  readonly #deps: KeySharesDeps
  readonly #shares = new Map<string, KeyShare>()
  readonly #keys = new FairSlots(keysMax)
  readonly #waiters = new FairSlots(waitersMax)
  /** Shares to renew before the next round, with the earliest time. */
  readonly #due = new Map<KeyShare, number>()
  #turn = 0
  /** Monotonic time at which all shares end. */
  #untilMs = Number.NEGATIVE_INFINITY
  #isAway = false
  #admitted = 0
  #refused = 0
  #roundAtMs = Number.NEGATIVE_INFINITY
  #askedAtMs = Number.NEGATIVE_INFINITY
  #changed = Promise.withResolvers<void>()

  constructor(deps: KeySharesDeps) {
    this.#deps = deps
  }

  /** Number of keys with shares. */
  get size(): number {
    return this.#shares.size
  }

  get isShared(): boolean {
    return this.#deps.isShared()
  }

  /** Returns the view for metrics; null if the limits are not shared. */
  view(): SharedLimitsView | null {
    if (!this.isShared) return null
    const goodMs = Math.max(0, this.#untilMs - this.#deps.clock.monotonicMs())
    return { keys: this.#shares.size, admitted: this.#admitted, refused: this.#refused, goodMs }
  }

  /** Counts a request of a key whose limits are shared: admitted within the share, or refused only for lack of it. */
  note(outcome: 'admitted' | 'refused'): void {
    if (outcome === 'admitted') this.#admitted += 1
    else this.#refused += 1
  }

  /** Adds the share of a key that comes into use, and requests it at once. Null if there is no room for more keys. */
  follow(caller: Caller, use: KeyUse): KeyShare | null {
    const known = this.#shares.get(caller.keyPrefix)
    if (known !== undefined) return known
    const leave = this.#keys.take([{ name: caller.organizationId, parts: keysParts }])
    if (typeof leave === 'string') return null
    const share = new KeyShare(caller, use, leave)
    this.#shares.set(share.prefix, share)
    this.#askSoon(share, this.#deps.clock.monotonicMs())
    return share
  }

  /** Reports whether the request fits into the share now. */
  fits(share: KeyShare, { tokens, nowMs }: Pick<Demand, 'tokens' | 'nowMs'>): boolean {
    const [requestsMax, tokensMax, runningMax] = this.#inForce(share, nowMs)
    const { use } = share
    if (use.running >= runningMax) return false
    return use.requests.total(nowMs) + 1 <= requestsMax && use.tokens.total(nowMs) + tokens <= tokensMax
  }

  /** Returns the estimated milliseconds until the request fits into the share; 0 if it fits now. */
  waitMs(share: KeyShare, demand: Pick<Demand, 'tokens' | 'nowMs'>): number {
    if (this.fits(share, demand)) return 0
    let longestMs = 0
    for (const dimension of DIMENSIONS) {
      const ownMs = this.#ownWaitMs(share, dimension, demand)
      if (ownMs === 0) continue
      longestMs = Math.max(
        longestMs,
        Math.min(ownMs ?? Number.POSITIVE_INFINITY, moreInMs(share, dimension, demand.nowMs)),
      )
    }
    return longestMs
  }

  /** Like `waitMs`, but only for the tokens. */
  tokensWaitMs(share: KeyShare, demand: Pick<Demand, 'tokens' | 'nowMs'>): number {
    const ownMs = this.#ownWaitMs(share, 1, demand)
    if (ownMs === 0) return 0
    return Math.min(ownMs ?? Number.POSITIVE_INFINITY, moreInMs(share, 1, demand.nowMs))
  }

  /** Returns the requests and tokens that this gateway would still admit. */
  left(share: KeyShare, nowMs: number): { readonly requests: number; readonly tokens: number } {
    const [requests, tokens] = this.#inForce(share, nowMs)
    return { requests: requests - share.use.requests.total(nowMs), tokens: tokens - share.use.tokens.total(nowMs) }
  }

  /** Returns null to decide now; otherwise a promise to await, because a share may arrive soon. It never rejects. */
  prepare(share: KeyShare, demand: Demand): Promise<void> | null {
    if (!this.#isHopeful(share, demand)) return null
    const leave = this.#waiters.take([{ name: share.prefix, parts: waitersParts }])
    if (typeof leave === 'string') return null
    share.waiters += 1
    share.noteNeed(demand, shareWaitMs)
    this.#askSoon(share, demand.nowMs)
    return this.#waitFor(share, demand).finally(() => {
      share.waiters -= 1
      leave()
    })
  }

  /** Renews until the signal is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    while (!signal.aborted) {
      const nowMs = clock.monotonicMs()
      const changed = this.#changed.promise
      const asked = this.#asksDue(nowMs)
      if (asked.length > 0) await this.#ask(asked, nowMs)
      else await this.#pauseUntil(this.#nextAtMs(), changed, signal)
    }
  }

  async #waitFor(share: KeyShare, demand: Demand): Promise<void> {
    const { clock } = this.#deps
    const untilMs = demand.nowMs + shareWaitMs
    for (let nowMs = demand.nowMs; nowMs < untilMs; nowMs = clock.monotonicMs()) {
      if (!this.#isHopeful(share, { ...demand, nowMs })) return
      if (nowMs > demand.nowMs) this.#askSoon(share, nowMs + waitingRenewMs)
      const ended = new AbortController()
      await Promise.race([share.changed.promise, pause(clock, untilMs - nowMs, ended.signal)])
      ended.abort()
    }
  }

  /** Reports whether a request that does not fit now may fit after the next responses. */
  #isHopeful(share: KeyShare, { caller, tokens, nowMs }: Demand): boolean {
    if (this.#isAway || share.isDropped || tokens > caller.tokensPerMinute) return false
    const lacking = DIMENSIONS.filter(dimension => this.#ownWaitMs(share, dimension, { tokens, nowMs }) !== 0)
    return lacking.length > 0 && lacking.every(dimension => moreInMs(share, dimension, nowMs) <= soonMs)
  }

  /** Returns the milliseconds until this share alone admits the request; 0 for now, null for never. */
  #ownWaitMs(
    share: KeyShare,
    dimension: Dimension,
    { tokens, nowMs }: Pick<Demand, 'tokens' | 'nowMs'>,
  ): number | null {
    const bound = this.#inForce(share, nowMs)[dimension]
    const { requests, tokens: taken, running, durationMs } = share.use
    if (dimension === 0) return windowWaitMs(requests, { amount: 1, bound, nowMs })
    if (dimension === 1) return windowWaitMs(taken, { amount: tokens, bound, nowMs })
    if (running < bound) return 0
    return running === 0 ? null : Math.max(1, durationMs / running)
  }

  #inForce(share: KeyShare, nowMs: number): Readonly<Amounts> {
    return nowMs < this.#untilMs ? share.amounts : NO_AMOUNTS
  }

  #askSoon(share: KeyShare, atMs: number): void {
    const known = this.#due.get(share)
    if (share.isDropped || (known !== undefined && known <= atMs)) return
    this.#due.set(share, atMs)
    this.#changed.resolve()
    this.#changed = Promise.withResolvers<void>()
  }

  async #pauseUntil(atMs: number, changed: Promise<void>, signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    const ended = new AbortController()
    const stop = onAbort(signal, () => ended.abort())
    await Promise.race([changed, pause(clock, Math.min(longestPauseMs, atMs - clock.monotonicMs()), ended.signal)])
    stop()
    ended.abort()
  }

  #nextAtMs(): number {
    if (this.#shares.size === 0) return Number.POSITIVE_INFINITY
    let soonestMs = this.#roundAtMs + renewMs
    for (const atMs of this.#due.values()) soonestMs = Math.min(soonestMs, atMs)
    return Math.max(soonestMs, this.#askedAtMs + (this.#isAway ? failedRenewMs : gapMs))
  }

  /** Returns the shares to renew: all every `renewMs`, otherwise those that are due. */
  #asksDue(nowMs: number): KeyShare[] {
    if (nowMs < this.#nextAtMs()) return []
    if (nowMs >= this.#roundAtMs + renewMs) {
      this.#roundAtMs = nowMs
      return [...this.#shares.values()]
    }
    const due = [...this.#due].filter(([, atMs]) => atMs <= nowMs).map(([share]) => share)
    return due.slice(0, this.#deps.keysPerAskMax)
  }

  async #ask(shares: readonly KeyShare[], nowMs: number): Promise<void> {
    const { keysPerAskMax } = this.#deps
    this.#askedAtMs = nowMs
    for (const share of shares) this.#due.delete(share)
    for (let first = 0; first < shares.length; first += keysPerAskMax) {
      if (!(await this.#askOnce(shares.slice(first, first + keysPerAskMax)))) break
    }
    for (const share of shares) {
      share.changed.resolve()
      share.changed = Promise.withResolvers<void>()
    }
  }

  /** Returns false if the fleet did not answer. */
  async #askOnce(shares: readonly KeyShare[]): Promise<boolean> {
    const { renew, clock, log } = this.#deps
    const askedMs = clock.monotonicMs()
    // Other hosts may have these shares by now.
    if (askedMs >= this.#untilMs) for (const share of this.#shares.values()) share.amounts = [...NO_AMOUNTS]
    const asks = shares.map(share => share.ask(askedMs, !this.#isAway))
    this.#turn += 1
    try {
      const { goodMs, grants } = await renew(this.#turn, asks)
      if (goodMs > 0) this.#apply(asks, grants, askedMs + goodMs)
      if (this.#isAway) log.info('the fleet serves rate limit shares again')
      this.#isAway = false
      return true
    } catch (error) {
      if (!this.#isAway) log.warn('the fleet does not serve rate limit shares; current shares stay in use', { error })
      this.#isAway = true
      return false
    }
  }

  #apply(asks: readonly ShareAsk[], grants: readonly ShareGrant[], untilMs: number): void {
    this.#untilMs = Math.max(this.#untilMs, untilMs)
    const nowMs = this.#deps.clock.monotonicMs()
    const granted = new Map(grants.map(grant => [grant.keyPrefix, grant]))
    for (const { keyPrefix, wanted } of asks) {
      const share = this.#shares.get(keyPrefix)
      if (share === undefined) continue
      const grant = granted.get(keyPrefix)
      const isGivenBack = wanted.every(amount => amount === 0) && share.isIdle(nowMs)
      if (grant === undefined || isGivenBack) this.#drop(share)
      else this.#applyTo(share, grant, nowMs)
    }
  }

  #applyTo(share: KeyShare, { share: granted, keep, moreInMs, isWanted }: ShareGrant, nowMs: number): void {
    share.amounts = [Math.min(granted[0], keep[0]), Math.min(granted[1], keep[1]), Math.min(granted[2], keep[2])]
    share.moreAtMs = [nowMs + moreInMs[0], nowMs + moreInMs[1], nowMs + moreInMs[2]]
    if (isWanted) this.#askSoon(share, nowMs)
  }

  /** Removes a share that was returned, or whose key no longer exists. */
  #drop(share: KeyShare): void {
    share.isDropped = true
    share.amounts = [...NO_AMOUNTS]
    share.leave()
    this.#due.delete(share)
    this.#shares.delete(share.prefix)
  }
}

/** Returns the estimated milliseconds until the fleet may grant more. */
function moreInMs(share: KeyShare, dimension: Dimension, nowMs: number): number {
  return share.moreAtMs === null ? renewMs : Math.max(1, share.moreAtMs[dimension] - nowMs)
}

function windowWaitMs(
  window: Window,
  { amount, bound, nowMs }: { readonly amount: number; readonly bound: number; readonly nowMs: number },
): number | null {
  return amount > bound ? null : window.waitMs(nowMs, amount, bound)
}
