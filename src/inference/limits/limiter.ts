// Limits of each key: requests and tokens per minute, concurrent requests. State in memory, one entry per key in use.
//
// Tokens: admission takes the estimate. Unused tokens are returned while that second is still in the window; tokens
// beyond the estimate are taken at the end, so they may exceed the limit once, and later requests wait for them. An
// estimate above the limit waits for an empty window and takes all of it, so that the wait in every Retry-After ends.

import type { Clock } from '../../base/clock.ts'
import { createWindow, type Window, wholeSeconds, windowMs } from '../../http/window.ts'
import type { Admit, Caller, Refusal, Ticket, Tokens } from '../types.ts'

export type Limiter = {
  readonly admit: Admit
  /** Keys with state. */
  readonly size: () => number
  /** Admitted requests that have not ended, all keys together. */
  readonly running: () => number
}

type State = {
  readonly requests: Window
  readonly tokens: Window
  running: number
  usedAtMs: number
  /** Moving average of how long requests take; estimates the wait of a request beyond the concurrency limit. */
  durationMs: number
}

/** Assumed until a request has ended. */
const durationMsInitial = 1_000
const slotWaitMaxMs = 60_000
/** Weight of the newest duration in the average. */
const newestShare = 0.2

export function createLimiter(clock: Pick<Clock, 'monotonicMs'>): Limiter {
  const states = new Map<string, State>()
  let sweptAtMs = clock.monotonicMs()

  /** State says nothing once its window is empty and no request runs. */
  const sweep = (nowMs: number) => {
    if (nowMs - sweptAtMs < windowMs) return
    sweptAtMs = nowMs
    for (const [prefix, state] of states) {
      if (state.running === 0 && nowMs - state.usedAtMs >= windowMs) states.delete(prefix)
    }
  }
  const stateOf = (prefix: string): State => {
    const known = states.get(prefix)
    if (known !== undefined) return known
    const state = newState()
    states.set(prefix, state)
    return state
  }

  return {
    admit: (caller, estimate) => {
      const nowMs = clock.monotonicMs()
      sweep(nowMs)
      const state = stateOf(caller.keyPrefix)
      state.usedAtMs = nowMs
      const tokens = Math.min(amountOf(estimate), caller.tokensPerMinute)
      const refusal = refusalOf(state, { caller, tokens, nowMs })
      if (refusal !== null) return { ok: false, refusal }
      state.running += 1
      state.requests.take(nowMs, 1)
      const at = state.tokens.take(nowMs, tokens)
      const headers = headersOf(state, caller, nowMs)
      return { ok: true, ticket: ticketOf(state, { clock, nowMs, at, tokens, headers }) }
    },
    size: () => states.size,
    running: () => states.values().reduce((sum, state) => sum + state.running, 0),
  }
}

function newState(): State {
  return { requests: createWindow(), tokens: createWindow(), running: 0, usedAtMs: 0, durationMs: durationMsInitial }
}

type Taken = {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly nowMs: number
  readonly at: number
  readonly tokens: number
  readonly headers: Ticket['headers']
}

function ticketOf(state: State, taken: Taken): Ticket {
  let isSettled = false
  return {
    headers: taken.headers,
    settle: used => {
      if (isSettled) return
      isSettled = true
      const nowMs = taken.clock.monotonicMs()
      state.running -= 1
      state.usedAtMs = nowMs
      state.durationMs += newestShare * (nowMs - taken.nowMs - state.durationMs)
      const real = realTokens(used)
      if (real < taken.tokens) state.tokens.giveBack(nowMs, taken.at, taken.tokens - real)
      else state.tokens.take(nowMs, real - taken.tokens)
    },
  }
}

function realTokens({ prompt, completion }: Tokens): number {
  return amountOf(prompt) + amountOf(completion)
}

/** 0 for a count that makes no sense. */
function amountOf(count: number): number {
  return Number.isFinite(count) && count > 0 ? Math.ceil(count) : 0
}

type Demand = { readonly caller: Caller; readonly tokens: number; readonly nowMs: number }

/** Null: admitted. */
function refusalOf(state: State, { caller, tokens, nowMs }: Demand): Refusal | null {
  const requestsMs = state.requests.waitMs(nowMs, 1, caller.requestsPerMinute)
  const tokensMs = state.tokens.waitMs(nowMs, tokens, caller.tokensPerMinute)
  const slotMs = state.running < caller.concurrencyMax ? 0 : slotWaitMs(state)
  const waitMs = Math.max(requestsMs, tokensMs, slotMs)
  if (waitMs === 0) return null
  let limit = `${caller.concurrencyMax} concurrent requests`
  if (waitMs === requestsMs) limit = `${caller.requestsPerMinute} requests per minute`
  else if (waitMs === tokensMs) limit = `${caller.tokensPerMinute} tokens per minute`
  return {
    retryAfterSeconds: wholeSeconds(waitMs),
    headers: headersOf(state, caller, nowMs),
    message: `Limit of ${limit} reached.`,
  }
}

/** An estimate: requests take as long as they lately did, and end evenly spread over that time. */
function slotWaitMs(state: State): number {
  return Math.min(slotWaitMaxMs, Math.max(1, state.durationMs / state.running))
}

/** As OpenAI names and writes them. A reset is when the window is empty again. */
function headersOf(state: State, caller: Caller, nowMs: number): Record<string, string> {
  return {
    'x-ratelimit-limit-requests': String(caller.requestsPerMinute),
    'x-ratelimit-remaining-requests': remainingText(state.requests.total(nowMs), caller.requestsPerMinute),
    'x-ratelimit-reset-requests': resetText(state.requests.emptyInMs(nowMs)),
    'x-ratelimit-limit-tokens': String(caller.tokensPerMinute),
    'x-ratelimit-remaining-tokens': remainingText(state.tokens.total(nowMs), caller.tokensPerMinute),
    'x-ratelimit-reset-tokens': resetText(state.tokens.emptyInMs(nowMs)),
  }
}

function remainingText(taken: number, limit: number): string {
  return String(Math.max(0, limit - taken))
}

/** `250ms`, `12s`, `1m1s`: rounded up. */
export function resetText(ms: number): string {
  if (ms < 1_000) return `${Math.ceil(ms)}ms`
  const total = wholeSeconds(ms)
  return total < 60 ? `${total}s` : `${Math.floor(total / 60)}m${total % 60}s`
}
