// Gateways of several hosts that share the limits of keys over a real PostgreSQL, on clocks that move when told, with
// faults; and what any minute and any moment held. Effects: statements to PostgreSQL.

import { createManualClock, type ManualClock } from '../../../scripts/rigs/clock.ts'
import { hostId } from '../../../scripts/rigs/postgres/hosts.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { Amounts, ShareAnswer, ShareAsk } from '../../../src/contract/vm/shares.ts'
import type { Postgres } from '../../../src/fleet/postgres.ts'
import { ShareAllocator } from '../../../src/fleet/rate-limits/share-allocator.ts'
import { limitsOf } from '../../../src/inference/limits/key-share.ts'
import { KeyShares } from '../../../src/inference/limits/key-shares.ts'
import { createLimiter, type Limiter } from '../../../src/inference/limits/limiter.ts'
import type { Caller } from '../../../src/inference/types.ts'

/** Fate of a question. `late`: it reaches the database after a newer one, perhaps. */
export type Link = 'ok' | 'away' | 'loses-answers' | 'late' | 'frozen'

type Taken = { readonly atMs: number; readonly key: string; tokens: number; endMs: number; readonly host: string }

export class SharedGateways {
  readonly clock: ManualClock = createManualClock()
  readonly taken: Taken[] = []
  readonly hosts: SharedGateway[]
  readonly #postgres: Postgres
  readonly #callers: readonly Caller[]
  /** The database serves nobody. */
  isAway = false
  statements = 0
  #pending = 0
  #late: { readonly atMs: number; readonly run: () => Promise<unknown> }[] = []

  constructor(postgres: Postgres, names: readonly string[], callers: readonly Caller[]) {
    this.#postgres = postgres
    this.#callers = callers
    this.hosts = names.map((name, at) => new SharedGateway(this, name, at * 377))
  }

  deskOf(name: string): ShareAllocator {
    return new ShareAllocator({
      postgres: this.#postgres,
      hostId: hostId(name),
      limitsOf: prefix => this.limitsOf(prefix),
    })
  }

  limitsOf(prefix: string): Amounts | null {
    const caller = this.#callers.find(({ keyPrefix }) => keyPrefix === prefix)
    return caller === undefined ? null : limitsOf(caller)
  }

  /** Work in the database that time waits for. */
  async counted<T>(work: () => Promise<T>): Promise<T> {
    this.#pending += 1
    this.statements += 1
    try {
      return await work()
    } finally {
      this.#pending -= 1
    }
  }

  returns(): void {
    this.isAway = false
  }

  later(inMs: number, run: () => Promise<unknown>): void {
    this.#late.push({ atMs: this.clock.monotonicMs() + inMs, run })
  }

  /** Lets time pass; the clock of silence goes on while the database serves, at most three seconds in a step. */
  async step(ms: number): Promise<void> {
    if (!this.isAway) {
      await this.#postgres.query(
        "UPDATE clock SET served_ms = served_ms + $1, renewed_at = clock_timestamp() + interval '1 day'",
        [Math.min(ms, 3_000)],
      )
    }
    await this.clock.elapse(ms)
    await this.settled()
    const nowMs = this.clock.monotonicMs()
    const due = this.#late.filter(({ atMs }) => atMs <= nowMs)
    this.#late = this.#late.filter(({ atMs }) => atMs > nowMs)
    for (const { run } of due) await run().catch(() => {})
  }

  async settled(): Promise<void> {
    await this.clock.elapse(0)
    while (this.#pending > 0) {
      await new Promise(resolve => setImmediate(resolve))
      await this.clock.elapse(0)
    }
  }

  /** The most of a key that any 60 seconds held, in requests and tokens, and that ran at once. */
  mostOf(key: string): Amounts {
    const taken = this.taken.filter(request => request.key === key).toSorted((a, b) => a.atMs - b.atMs)
    const most: Amounts = [0, 0, 0]
    let [from, requests, tokens] = [0, 0, 0]
    for (const request of taken) {
      requests += 1
      tokens += request.tokens
      for (; (taken[from]?.atMs ?? request.atMs) <= request.atMs - 60_000; from += 1) {
        requests -= 1
        tokens -= taken[from]?.tokens ?? 0
      }
      most[0] = Math.max(most[0], requests)
      most[1] = Math.max(most[1], tokens)
    }
    const moves = taken.flatMap(({ atMs, endMs }) => [
      { atMs, by: 1 },
      { atMs: endMs, by: -1 },
    ])
    let running = 0
    // Ends first: what ended in this very step ran no more when the next began.
    for (const { by } of moves.toSorted((a, b) => a.atMs - b.atMs || a.by - b.by)) {
      running += by
      most[2] = Math.max(most[2], running)
    }
    return most
  }

  stop(): void {
    for (const host of this.hosts) host.stop()
  }
}

export class SharedGateway {
  readonly name: string
  link: Link = 'ok'
  /** How late a late question is. */
  lateMs = 3_000
  readonly #fleet: SharedGateways
  readonly #offsetMs: number
  #desk: ShareAllocator
  #limiter: Limiter
  #stopping = new AbortController()
  #thaw = Promise.withResolvers<void>()
  #starts = 0

  constructor(fleet: SharedGateways, name: string, offsetMs: number) {
    this.name = name
    this.#fleet = fleet
    this.#offsetMs = offsetMs
    this.#desk = fleet.deskOf(name)
    this.#limiter = this.#start()
  }

  /** As kill -9 and a new start: what ran ends, and nothing is known any more. */
  restart(): void {
    this.stop()
    this.#thaw.resolve()
    const nowMs = this.#fleet.clock.monotonicMs()
    for (const request of this.#fleet.taken) {
      if (request.host === this.name && request.endMs > nowMs) request.endMs = nowMs
    }
    this.#desk = this.#fleet.deskOf(this.name)
    this.#limiter = this.#start()
  }

  thaw(): void {
    this.link = 'ok'
    this.#thaw.resolve()
    this.#thaw = Promise.withResolvers()
  }

  stop(): void {
    this.#stopping.abort()
  }

  /** A request, which ends after `lastsMs`; resolves with its Retry-After in seconds, null where it is admitted. */
  async enter(caller: Caller, tokens: number, lastsMs = 0): Promise<number | null> {
    if (this.link === 'frozen') return 1
    const { clock } = this.#fleet
    const limiter = this.#limiter
    const { signal } = this.#stopping
    await limiter.prepare(caller, tokens)
    if (signal.aborted) return 1
    const outcome = limiter.admit(caller, tokens)
    if (!outcome.ok) return outcome.refusal.retryAfterSeconds
    const atMs = clock.monotonicMs()
    const request: Taken = { atMs, key: caller.keyPrefix, tokens, endMs: atMs + lastsMs, host: this.name }
    this.#fleet.taken.push(request)
    const end = () => {
      if (signal.aborted) return
      request.endMs = clock.monotonicMs()
      outcome.ticket.settle({ prompt: tokens, completion: 0 })
    }
    if (lastsMs === 0) end()
    else void clock.sleep(lastsMs).then(end)
    return null
  }

  #start(): Limiter {
    const fleet = this.#fleet
    const clock = {
      monotonicMs: () => fleet.clock.monotonicMs() + this.#offsetMs,
      sleep: (ms: number, signal?: AbortSignal) => fleet.clock.sleep(ms, signal),
    }
    this.#stopping = new AbortController()
    this.#starts += 1
    const member = `start-${this.#starts}`
    const desk = this.#desk
    let isFirst = this.#starts > 1
    const ask = async (turn: number, asks: readonly ShareAsk[]): Promise<ShareAnswer> => {
      if (isFirst) await desk.endOthers(member)
      isFirst = false
      return await desk.renew(member, turn, asks)
    }
    const shares = new KeyShares({
      isShared: () => true,
      keysPerAskMax: 64,
      renew: (turn, asks) => this.#sent(() => ask(turn, asks)),
      clock,
      log: silentLogger,
    })
    void shares.run(this.#stopping.signal)
    return createLimiter(clock, shares)
  }

  async #sent(ask: () => Promise<ShareAnswer>): Promise<ShareAnswer> {
    const fleet = this.#fleet
    const lost = new Error('no answer')
    if (this.link === 'away' || fleet.isAway) throw lost
    if (this.link === 'late') {
      fleet.later(this.lateMs, () => fleet.counted(ask))
      throw lost
    }
    const answer = await fleet.counted(ask)
    if (this.link === 'frozen') await this.#thaw.promise
    if (this.link === 'loses-answers') throw lost
    return answer
  }
}
