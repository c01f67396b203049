// Limits of each key: requests and tokens per minute, concurrent requests. State in memory, one entry per key in use.
//
// Tokens: admission takes the estimate. Unused tokens are returned while that second is still in the window; tokens
// beyond the estimate are taken at the end, so they may exceed the limit once, and later requests wait for them. An
// estimate above the limit waits for an empty window and takes all of it, so that the wait in every Retry-After ends.
//
// In a fleet a key's share bounds what this gateway admits (key-shares.ts); the key's own limits apply as well.

import type { Clock } from '../../base/clock.ts'
import { IdleMap } from '../../base/work/idle-map.ts'
import { createWindow, type TakenAt, wholeSeconds, windowMs } from '../../http/window.ts'
import type { Admit, Caller, Prepare, Refusal, Ticket, Tokens } from '../types.ts'
import type { Demand, KeyShare, KeyUse } from './key-share.ts'
import type { KeyShares } from './key-shares.ts'

export type Limiter = {
  readonly admit: Admit
  readonly prepare: Prepare
  /** Returns the number of keys with state. */
  readonly size: () => number
  /** Returns the number of admitted requests that have not ended, for all keys together. */
  readonly running: () => number
}

/** `durationMs` estimates the wait of a request beyond the concurrency limit. */
type State = KeyUse & {
  /** Null if this gateway has all of the limits, or there was no room for the key's share. */
  share: KeyShare | null
}

/** Assumed until the first request has ended. */
const durationMsInitial = 1_000
const slotWaitMaxMs = 60_000
/** Weight of the newest duration in the average. */
const newestShare = 0.2

/** `shares` is set if hosts of a fleet share the limits. */
export function createLimiter(clock: Pick<Clock, 'monotonicMs'>, shares: KeyShares | null = null): Limiter {
  const states = new IdleMap<State>(windowMs, clock.monotonicMs())
  /** Such a state is kept although its windows are empty. */
  const isHeld = ({ share, running }: State) => running > 0 || (share !== null && !share.isDropped)
  const stateOf = (caller: Caller, nowMs: number): State => {
    const known = states.get(caller.keyPrefix)
    const state = known ?? newState()
    if (known === undefined) states.set(caller.keyPrefix, state)
    state.usedAtMs = nowMs
    if (shares === null) return state
    if (!shares.isShared) state.share = null
    else if (state.share === null || state.share.isDropped) state.share = shares.follow(caller, state)
    return state
  }

  return {
    prepare: (caller, estimate) => {
      if (shares === null) return null
      const nowMs = clock.monotonicMs()
      const state = stateOf(caller, nowMs)
      const demand = { caller, tokens: Math.min(amountOf(estimate), caller.tokensPerMinute), nowMs }
      if (state.share === null || shares.fits(state.share, demand) || limitOf(state, demand) !== null) return null
      return shares.prepare(state.share, demand)
    },
    admit: (caller, estimate) => {
      const nowMs = clock.monotonicMs()
      states.sweep(nowMs, isHeld)
      const state = stateOf(caller, nowMs)
      const tokens = Math.min(amountOf(estimate), caller.tokensPerMinute)
      const demand = { caller, tokens, nowMs }
      const refusal = refusalOf(state, demand, shares)
      if (refusal !== null) return { ok: false, refusal }
      state.running += 1
      state.requests.take(nowMs, 1)
      const at = state.tokens.take(nowMs, tokens)
      state.share?.noteAdmitted(demand)
      if (state.share !== null) shares?.note('admitted')
      const headers = headersOf(state, { caller, nowMs, shares })
      return { ok: true, ticket: ticketOf(state, { caller, shares, clock, nowMs, at, tokens, headers }) }
    },
    size: () => states.size,
    running: () => states.values().reduce((sum, state) => sum + state.running, 0),
  }
}

function newState(): State {
  const windows = { requests: createWindow(), tokens: createWindow() }
  return { ...windows, running: 0, usedAtMs: 0, durationMs: durationMsInitial, share: null }
}

type AdmittedAmounts = {
  readonly caller: Caller
  readonly shares: KeyShares | null
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly nowMs: number
  readonly at: TakenAt
  readonly tokens: number
  readonly headers: Ticket['headers']
}

function ticketOf(state: State, taken: AdmittedAmounts): Ticket {
  let isSettled = false
  let { at, tokens } = taken
  return {
    headers: taken.headers,
    extend: more => {
      if (isSettled) return null
      const { caller, shares, clock } = taken
      const nowMs = clock.monotonicMs()
      const wanted = { caller, tokens: Math.min(tokens + amountOf(more), caller.tokensPerMinute), nowMs }
      // The tokens that the request has already reserved count for it, not against it.
      state.tokens.giveBack(nowMs, at, tokens)
      const refusal = tokensRefusalOf(state, wanted, shares)
      if (refusal === null) tokens = wanted.tokens
      at = state.tokens.take(nowMs, tokens)
      return refusal
    },
    settle: used => {
      if (isSettled) return
      isSettled = true
      const nowMs = taken.clock.monotonicMs()
      state.running -= 1
      state.usedAtMs = nowMs
      state.durationMs += newestShare * (nowMs - taken.nowMs - state.durationMs)
      const real = realTokens(used)
      if (real < tokens) state.tokens.giveBack(nowMs, at, tokens - real)
      else state.tokens.take(nowMs, real - tokens)
    },
  }
}

function realTokens({ prompt, completion }: Tokens): number {
  return amountOf(prompt) + amountOf(completion)
}

/** Returns 0 for a count that makes no sense. */
function amountOf(count: number): number {
  return Number.isFinite(count) && count > 0 ? Math.ceil(count) : 0
}

type ReachedLimit = { readonly waitMs: number; readonly limit: string }

/** Returns the limit that the request would exceed, and the wait; null if there is none. */
function limitOf(state: State, { caller, tokens, nowMs }: Demand): ReachedLimit | null {
  const requestsMs = state.requests.waitMs(nowMs, 1, caller.requestsPerMinute)
  const tokensMs = state.tokens.waitMs(nowMs, tokens, caller.tokensPerMinute)
  const slotMs = state.running < caller.concurrencyMax ? 0 : slotWaitMs(state)
  const waitMs = Math.max(requestsMs, tokensMs, slotMs)
  if (waitMs === 0) return null
  if (waitMs === requestsMs) return { waitMs, limit: `${caller.requestsPerMinute} requests per minute` }
  if (waitMs === tokensMs) return { waitMs, limit: `${caller.tokensPerMinute} tokens per minute` }
  return { waitMs, limit: `${caller.concurrencyMax} concurrent requests` }
}

/** Returns null if the request is admitted. */
function refusalOf(state: State, demand: Demand, shares: KeyShares | null): Refusal | null {
  const { caller, nowMs } = demand
  const own = limitOf(state, demand)
  const shareMs = shares === null || !shares.isShared ? 0 : shareWaitMs(state, demand, shares)
  if (own === null && shareMs === 0) return null
  const retryAfterSeconds = wholeSeconds(Math.max(own?.waitMs ?? 0, shareMs))
  if (shareMs > 0) state.share?.noteRefused(demand, retryAfterSeconds * 1_000)
  if (own === null) shares?.note('refused')
  const message =
    own === null
      ? 'Limit of this key reached: the hosts of this fleet share it, and this host has no more of it at present.'
      : `Limit of ${own.limit} reached.`
  return { retryAfterSeconds, headers: headersOf(state, { caller, nowMs, shares }), message }
}

/** Checks the tokens of an admitted request. Returns null if the limit has room for them. */
function tokensRefusalOf(state: State, wanted: Demand, shares: KeyShares | null): Refusal | null {
  const { caller, tokens, nowMs } = wanted
  const ownMs = state.tokens.waitMs(nowMs, tokens, caller.tokensPerMinute)
  const isShared = shares?.isShared === true
  const shareMs = !isShared ? 0 : state.share === null ? crowdedMs : shares.tokensWaitMs(state.share, wanted)
  const waitMs = Math.max(ownMs, shareMs)
  if (waitMs === 0) return null
  const retryAfterSeconds = wholeSeconds(waitMs)
  if (shareMs > 0) state.share?.noteNeed(wanted, retryAfterSeconds * 1_000)
  const message = `Limit of ${caller.tokensPerMinute} tokens per minute reached, including the earlier responses that the request names.`
  return { retryAfterSeconds, headers: headersOf(state, { caller, nowMs, shares }), message }
}

/** Wait if so many keys are active that this one got no share. */
const crowdedMs = 10_000

function shareWaitMs({ share }: State, demand: Demand, shares: KeyShares): number {
  return share === null ? crowdedMs : shares.waitMs(share, demand)
}

/** Returns an estimate: requests take as long as they lately did, and end evenly spread over that time. */
function slotWaitMs(state: State): number {
  return Math.min(slotWaitMaxMs, Math.max(1, state.durationMs / state.running))
}

/**
 * Returns headers with OpenAI's names and formats. A reset is the time at which the window is empty. In a fleet the
 * limit is the key's, and the remaining amount is what this gateway would still admit.
 */
function headersOf(
  state: State,
  { caller, nowMs, shares }: { readonly caller: Caller; readonly nowMs: number; readonly shares: KeyShares | null },
): Record<string, string> {
  let requests = caller.requestsPerMinute - state.requests.total(nowMs)
  let tokens = caller.tokensPerMinute - state.tokens.total(nowMs)
  if (shares?.isShared === true) {
    const left = state.share === null ? { requests: 0, tokens: 0 } : shares.left(state.share, nowMs)
    requests = Math.min(requests, left.requests)
    tokens = Math.min(tokens, left.tokens)
  }
  return {
    'x-ratelimit-limit-requests': String(caller.requestsPerMinute),
    'x-ratelimit-remaining-requests': String(Math.max(0, requests)),
    'x-ratelimit-reset-requests': resetText(state.requests.emptyInMs(nowMs)),
    'x-ratelimit-limit-tokens': String(caller.tokensPerMinute),
    'x-ratelimit-remaining-tokens': String(Math.max(0, tokens)),
    'x-ratelimit-reset-tokens': resetText(state.tokens.emptyInMs(nowMs)),
  }
}

/** Formats a duration as `250ms`, `12s` or `1m1s`, rounded up. */
export function resetText(ms: number): string {
  if (ms < 1_000) return `${Math.ceil(ms)}ms`
  const total = wholeSeconds(ms)
  return total < 60 ? `${total}s` : `${Math.floor(total / 60)}m${total % 60}s`
}
