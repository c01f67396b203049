// One key's share of its limits at this gateway: the amounts in force, and the need. State in memory; takes the time
// as an argument.

import { type Amounts, NO_AMOUNTS, type ShareAsk } from '../../contract/vm/shares.ts'
import { createWindow, type Window, windowMs } from '../../http/window.ts'
import type { Caller } from '../types.ts'

/** Use of a key, as the limiter counts it. */
export type KeyUse = {
  readonly requests: Window
  readonly tokens: Window
  running: number
  usedAtMs: number
  /** Moving average of how long requests take. */
  durationMs: number
}

/** A request, as far as the limits are concerned. `tokens` is at most the caller's limit. */
export type Demand = { readonly caller: Caller; readonly tokens: number; readonly nowMs: number }

/** How long the need of a refused client is kept after its Retry-After. */
const retrySlackMs = 5_000

/** An idle host keeps its use plus a fraction of 1 / `headroomParts` above it. */
const headroomParts = 16
const growth = 1.5

/** The request that was refused last, until it should have been retried. */
type Need = { tokens: number; readonly sinceMs: number; untilMs: number }

export class KeyShare {
  readonly prefix: string
  readonly use: KeyUse
  /** Frees the share's place. */
  readonly leave: () => void
  limits: Amounts
  /** In force while the lease is. */
  amounts: Amounts = [...NO_AMOUNTS]
  /** When more may be granted, in monotonic time; null if not yet answered. */
  moreAtMs: Amounts | null = null
  /** Number of requests that wait for the share. */
  waiters = 0
  /** Whether renewals have stopped. */
  isDropped = false
  changed = Promise.withResolvers<void>()
  /** Requests refused for lack of a share in the last minute. */
  readonly #refusedRequests = createWindow()
  readonly #refusedTokens = createWindow()
  /** Highest number of concurrent requests lately, refused ones included. */
  #peak = 0
  #need: Need | null = null

  constructor(caller: Caller, use: KeyUse, leave: () => void) {
    this.prefix = caller.keyPrefix
    this.use = use
    this.leave = leave
    this.limits = limitsOf(caller)
  }

  noteAdmitted({ caller }: Demand): void {
    this.limits = limitsOf(caller)
    this.#need = null
    this.#peak = Math.max(this.#peak, this.use.running)
  }

  /** Records a refusal for lack of a share. The client is expected to retry after `retryMs`. */
  noteRefused({ caller, tokens, nowMs }: Demand, retryMs: number): void {
    this.limits = limitsOf(caller)
    this.#refusedRequests.take(nowMs, 1)
    this.#refusedTokens.take(nowMs, tokens)
    this.#peak = Math.max(this.#peak, this.use.running + 1)
    this.noteNeed({ tokens, nowMs }, retryMs)
  }

  noteNeed({ tokens, nowMs }: Pick<Demand, 'tokens' | 'nowMs'>, retryMs: number): void {
    const untilMs = nowMs + retryMs + retrySlackMs
    this.#need ??= { tokens, sinceMs: nowMs, untilMs }
    this.#need.tokens = tokens
    this.#need.untilMs = Math.max(this.#need.untilMs, untilMs)
  }

  /** Reports whether nothing ran in the last minute, and nothing runs or waits now. */
  isIdle(nowMs: number): boolean {
    const { use } = this
    if (use.running > 0 || this.waiters > 0 || this.#need !== null || nowMs - use.usedAtMs < windowMs) return false
    return use.requests.total(nowMs) === 0 && use.tokens.total(nowMs) === 0
  }

  /**
   * Builds the request to the fleet. Gives up an idle key's share if allowed; the share ends here before the fleet
   * learns of that.
   */
  ask(nowMs: number, mayGiveBack: boolean): ShareAsk {
    const { use, limits } = this
    const held: Amounts = [use.requests.total(nowMs), use.tokens.total(nowMs), use.running]
    if (this.#need !== null && nowMs >= this.#need.untilMs) this.#need = null
    const isIdle = mayGiveBack && this.isIdle(nowMs)
    if (isIdle) this.amounts = [...NO_AMOUNTS]
    const need = this.#need
    const wantedOf = (amount: number, limit: number) =>
      isIdle ? 0 : Math.min(limit, Math.ceil(amount * growth) + Math.ceil(limit / headroomParts))
    const wanted: Amounts = [
      wantedOf(held[0] + this.#refusedRequests.total(nowMs), limits[0]),
      wantedOf(held[1] + this.#refusedTokens.total(nowMs), limits[1]),
      wantedOf(this.#peak, limits[2]),
    ]
    this.#peak = Math.max(use.running, Math.floor(this.#peak / 2))
    return {
      ...{ keyPrefix: this.prefix, share: this.amounts, held, wanted },
      least: need === null ? [...NO_AMOUNTS] : [held[0] + 1, held[1] + need.tokens, held[2] + 1],
      freesInMs: [
        freesInMs(use.requests, held[0], nowMs),
        freesInMs(use.tokens, held[1], nowMs),
        use.running === 0 ? 0 : Math.ceil(use.durationMs / use.running),
      ],
      waitingMs: need === null ? 0 : Math.floor(nowMs - need.sinceMs),
    }
  }
}

export function limitsOf({ requestsPerMinute, tokensPerMinute, concurrencyMax }: Caller): Amounts {
  return [requestsPerMinute, tokensPerMinute, concurrencyMax]
}

/** Returns the milliseconds until part of the held amount leaves the window. */
function freesInMs(window: Window, held: number, nowMs: number): number {
  return held === 0 ? 0 : Math.ceil(window.waitMs(nowMs, 1, held))
}
