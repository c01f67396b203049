// Budget blocks of gateway keys and organizations that this host leases from the directory, so that all hosts together
// never exceed a budget. Effects: statements to PostgreSQL, SQL on the host's database.
//
// For each budget, month and host, the directory stores how much that host may have spent and reserved. It grants more
// only while the sum over all hosts stays within the budget. A host stops using a block before it returns it. Hosts are
// trusted with this: a budget is the operator's own limit, and the hosts are the operator's.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { createSerial, type Serial } from '../../base/work/serial.ts'
import type { DirectoryStore } from '../../store/db.ts'
import { directoryAway, reasonOf } from '../failures.ts'
import type { Postgres } from '../postgres.ts'
import {
  type Amounts,
  type BudgetLease,
  type LeaseReply,
  leaseBudget,
  registerLeases,
  releaseBudget,
  type Scope,
} from './statements.ts'
import { StoredLeases, scopeName } from './stored-leases.ts'

export type BudgetLeasesDeps = {
  readonly directory: Pick<DirectoryStore, 'db'>
  readonly hostId: string
  readonly postgres: Pick<Postgres, 'query' | 'view'>
  /** Timeline of the server from which this host's copy comes. */
  readonly timeline: () => number
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly log: Logger
}

/** Amounts in the month of a scope, including this host's spending. */
export type LeaseDemand = {
  /** Spent and reserved. */
  readonly used: Amounts
  /** Required amount, including `used`. */
  readonly need: Amounts
  /** Desired amount, including `used`. */
  readonly want: Amounts
}

export type BudgetLeasesView = {
  readonly held: number
  readonly granted: number
  readonly refused: number
  readonly failed: number
}

/** How long a refusal is cached, so that an exhausted budget causes few statements. A failure backs off as long. */
const refusedMs = 1_000
/**
 * Limit on scopes with a cached refusal. No share: a refusal is cached for a second, and dropping one costs a
 * statement.
 */
const refusalsMax = 10_000
/**
 * Limit on requests that wait for one budget. No share: limits one budget; requests of its organization are limited
 * before.
 */
const waitingMax = 4_096

type Refusal = { readonly untilMs: number; readonly left: LeaseReply['left'] }

export class BudgetLeases {
  readonly #deps: BudgetLeasesDeps
  readonly #held: StoredLeases
  /** Serializes grants and returns, by budget and month. */
  readonly #turns = new Map<string, Serial>()
  readonly #refusals = new Map<string, Refusal>()
  #awayUntilMs = Number.NEGATIVE_INFINITY
  /** Timeline of the server on which this host's grants are registered; null before the first registration. */
  #registeredTimeline: number | null = null
  readonly #counts = { granted: 0, refused: 0, failed: 0 }

  constructor(deps: BudgetLeasesDeps) {
    this.#deps = deps
    this.#held = new StoredLeases(deps.directory)
  }

  /** Returns the lease; null if nothing was granted. */
  leaseOf(scope: Scope): Amounts | null {
    const held = this.#held.find(scope)
    return held === null ? null : { nanoUsd: held.nanoUsd, tokens: held.tokens }
  }

  all(): readonly BudgetLease[] {
    return this.#held.all()
  }

  /** Returns the number of leases, and how often this host requested more since its start, by result. */
  view(): BudgetLeasesView {
    return { held: this.#held.size, ...this.#counts }
  }

  /**
   * Requests more if `asked`, evaluated when its turn comes, needs more than is leased. Returns false if the budget has
   * no room at the moment. Fault `fleet.unavailable` if the budget's room is unknown.
   */
  async acquire(scope: Scope, asked: () => LeaseDemand): Promise<boolean> {
    return await this.#inTurn(scope, () => this.#acquire(scope, asked()))
  }

  async #inTurn<T>(scope: Scope, work: () => Promise<T>): Promise<T> {
    const name = scopeName(scope)
    const turns = this.#turns.get(name) ?? createSerial()
    if (turns.size() >= waitingMax) throw directoryAway(new Error(`${waitingMax} requests wait already`))
    this.#turns.set(name, turns)
    try {
      return await turns.run(work)
    } finally {
      if (turns.size() === 0) this.#turns.delete(name)
    }
  }

  async #acquire(scope: Scope, { used, need, want }: LeaseDemand): Promise<boolean> {
    const held = this.#held.find(scope)
    if (held !== null && covers(held, need)) return true
    try {
      const isGranted = await this.#ask(scope, held, { used, need, want })
      this.#counts[isGranted ? 'granted' : 'refused'] += 1
      return isGranted
    } catch (error) {
      this.#counts.failed += 1
      throw error
    }
  }

  async #ask(scope: Scope, held: BudgetLease | null, { used, need, want }: LeaseDemand): Promise<boolean> {
    const known = held ?? { nanoUsd: 0, tokens: 0 }
    const name = scopeName(scope)
    const { clock, postgres, hostId } = this.#deps
    const refusal = this.#refusals.get(name)
    if (refusal !== undefined && clock.monotonicMs() < refusal.untilMs && !mayFit(refusal, known, need)) return false
    const ask = { held: maxOf(known, used), need, want }
    let lease = await this.#withBackOff(() => leaseBudget(postgres, hostId, scope, ask))
    if (lease !== null && lease.timeline !== this.#registeredTimeline) {
      await this.#withBackOff(() => this.#register())
      lease = await this.#withBackOff(() => leaseBudget(postgres, hostId, scope, ask))
    }
    if (lease === null) throw directoryAway(new Error('the fleet does not have this host'))
    this.#held.set(scope, lease.granted)
    if (covers(lease.granted, need)) {
      this.#refusals.delete(name)
      return true
    }
    if (!lease.isKnown) throw directoryAway(new Error('other hosts have not said yet what they were granted'))
    if (this.#refusals.size >= refusalsMax) this.#refusals.clear()
    this.#refusals.set(name, { untilMs: clock.monotonicMs() + refusedMs, left: lease.left })
    return false
  }

  /**
   * Returns everything above `keep`, evaluated when its turn comes; until then the lease does not grow. If `keep` gives
   * null, returns nothing. The amount is removed here at once; if the message is lost, the directory reports it with
   * this host's next request. Fault `fleet.unavailable`.
   */
  async release(scope: Scope, keep: () => Amounts | null | Promise<Amounts | null>): Promise<void> {
    const { postgres, hostId } = this.#deps
    await this.#inTurn(scope, async () => {
      const kept = await keep()
      if (kept === null) return
      const held = this.#held.find(scope)
      const rest = held === null ? kept : minOf(held, kept)
      if (held !== null) this.#held.set(scope, rest)
      await this.#withBackOff(() => releaseBudget(postgres, hostId, scope, rest))
    })
  }

  /** Drops the lease of a past month, in which no request starts any more. */
  drop(scope: Scope): void {
    this.#held.remove(scope)
  }

  /**
   * Registers this host's leases if the server may lack them: after a start, and on another timeline. Fault
   * `fleet.unavailable`.
   */
  async registerIfNew(): Promise<void> {
    if (this.#registeredTimeline === null || this.#registeredTimeline !== this.#deps.timeline())
      await this.registerAgain()
  }

  /** Registers this host's leases. Fault `fleet.unavailable`. */
  async registerAgain(): Promise<void> {
    await this.#withBackOff(() => this.#register())
  }

  async #register(): Promise<void> {
    const { postgres, hostId, log } = this.#deps
    const held = this.#held.all()
    this.#registeredTimeline = await registerLeases(postgres, hostId, held)
    log.debug('the directory has the budget parts of this host', { count: held.length })
  }

  /** Fails immediately for a while after a failure, because requests wait in a queue. */
  async #withBackOff<T>(work: () => Promise<T>): Promise<T> {
    const { postgres, clock, log } = this.#deps
    // Other tasks query the database every second or two, and so detect that it is back.
    if (!postgres.view().isReachable || clock.monotonicMs() < this.#awayUntilMs)
      throw directoryAway(new Error('it does not answer'))
    try {
      return await work()
    } catch (error) {
      this.#awayUntilMs = clock.monotonicMs() + refusedMs
      log.debug('the directory did not say what may be used of a budget', { problem: reasonOf(error) })
      throw error
    }
  }
}

function covers(held: Amounts, need: Amounts): boolean {
  return held.nanoUsd >= need.nanoUsd && held.tokens >= need.tokens
}

function mayFit({ left }: Refusal, held: Amounts, need: Amounts): boolean {
  const fits = (room: number | null, more: number) => room === null || more <= Math.max(0, room)
  return fits(left.nanoUsd, need.nanoUsd - held.nanoUsd) && fits(left.tokens, need.tokens - held.tokens)
}

function maxOf(a: Amounts, b: Amounts): Amounts {
  return { nanoUsd: Math.max(a.nanoUsd, b.nanoUsd), tokens: Math.max(a.tokens, b.tokens) }
}

function minOf(a: Amounts, b: Amounts): Amounts {
  return { nanoUsd: Math.min(a.nanoUsd, b.nanoUsd), tokens: Math.min(a.tokens, b.tokens) }
}
