// Chooses the upstream of a request: the least loaded by weight, within its concurrency limit; a bounded queue;
// ejection and return. Effects: timers.
//
// Fairness between organizations: the waiting request whose organization has the fewest requests running goes first,
// and a full queue drops the newest request of its largest organization. While several organizations ask, each leaves
// an eighth of an upstream's places to the others; a single one may use all.

import { type Clock, onAbort, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { shareOf } from '../../base/work/places.ts'
import { wholeSeconds } from '../../http/window.ts'
import { BusyFault, UpstreamFault } from '../failure.ts'

export type RouterTarget = {
  readonly name: string
  readonly models: readonly string[]
  readonly weight: number
  readonly concurrencyMax: number
}

export type RouterDeps<T extends RouterTarget> = {
  readonly targets: readonly T[]
  /** Whether a target is healthy: asked before it is ejected, and until it is back. */
  readonly probe: (target: T, signal: AbortSignal) => Promise<boolean>
  readonly clock: Clock
  readonly log: Logger
  /** Requests that may wait for one model. */
  readonly queueMax: number
  readonly queueTimeoutMs: number
  /** Failures in a row that eject a target. */
  readonly ejectFailures: number
  /** Between ejection and probe, and between probes. */
  readonly ejectMs: number
}

/** Health of the target as a lease's end shows it. `unknown`: the client left, or its request was invalid. */
export type TargetHealth = 'healthy' | 'unhealthy' | 'unknown'

/** One request's use of a target. */
export type Lease<T> = {
  readonly target: T
  /** Ends it, once; further calls have no effect. */
  readonly release: (health: TargetHealth) => void
}

export type RouterTargetView = {
  readonly name: string
  readonly active: number
  readonly ejected: boolean
}

export type RouterView = {
  /** Requests in the queues. */
  readonly waiting: number
  readonly targets: readonly RouterTargetView[]
}

type AcquireOptions<T> = {
  readonly except: ReadonlySet<T>
  readonly signal: AbortSignal
  /** Organization of the request. */
  readonly owner: string
}

type TargetState<T> = {
  readonly target: T
  active: number
  readonly activeByOwner: Map<string, number>
  served: number
  /** When its newest lease began. */
  leasedAtMs: number
  /** Moving average of how long leases last. */
  leaseMs: number
  failures: number
  ejected: boolean
  /** A probe decides just now whether it is ejected. */
  isJudged: boolean
  /** Aborted: the next probe is due now. */
  probeDue: AbortController
}

type Waiter<T> = {
  readonly owner: string
  readonly except: ReadonlySet<T>
  readonly resolve: (lease: Lease<T>) => void
  readonly reject: (error: unknown) => void
}

/** Assumed until a lease has ended. */
const leaseMsInitial = 1_000
/** Weight of the newest lease in the average. */
const newestShare = 0.2
const retryAfterSecondsMax = 60
/** For so long after its last request places are left for an organization. */
const recentMs = 600_000
/** An organization leaves 1 / `leftParts` of an upstream's places to others, at least one where there are two. */
const leftParts = 8
/** Organizations that are remembered; all that matters is whether there is another. */
const recentOwnersMax = 64

export class Router<T extends RouterTarget> {
  readonly #deps: RouterDeps<T>
  readonly #targets: readonly TargetState<T>[]
  readonly #targetsByModel = new Map<string, TargetState<T>[]>()
  readonly #queues = new Map<string, WaiterQueue<T>>()
  readonly #closing = new AbortController()
  /** When each asked last, the longest ago first. */
  readonly #askedAtMs = new Map<string, number>()

  constructor(deps: RouterDeps<T>) {
    this.#deps = deps
    this.#targets = deps.targets.map(newTargetState)
    for (const state of this.#targets) {
      for (const model of new Set(state.target.models)) {
        this.#targetsByModel.set(model, [...this.#targetsOf(model), state])
      }
    }
  }

  /**
   * A lease immediately if a target is free, otherwise a promise. Throws, or rejects after waiting: UpstreamFault
   * none_healthy; BusyFault if the queue is full or the wait too long; the signal's reason if it is aborted.
   */
  acquire(model: string, { except, signal, owner }: AcquireOptions<T>): Lease<T> | Promise<Lease<T>> {
    signal.throwIfAborted()
    this.#noteOwner(owner)
    let isAnyEligible = false
    let best: TargetState<T> | null = null
    for (const state of this.#targetsOf(model)) {
      if (!isEligible(state, except)) continue
      isAnyEligible = true
      if (this.#isFree(state, owner) && (best === null || compareLoad(state, best) < 0)) best = state
    }
    if (!isAnyEligible) throw new UpstreamFault('none_healthy')
    // No waiter is passed over: a free target goes to its first waiter.
    return best === null ? this.#enqueue(model, { except, signal, owner }) : this.#lease(best, owner)
  }

  view(): RouterView {
    return {
      waiting: this.#queues.values().reduce((sum, queue) => sum + queue.size, 0),
      targets: this.#targets.map(({ target, active, ejected }) => ({ name: target.name, active, ejected })),
    }
  }

  /** Probes the target now if it is ejected: its owner has seen that it is healthy. */
  probeNow(name: string): void {
    for (const state of this.#targets) if (state.target.name === name && state.ejected) state.probeDue.abort()
  }

  /** Rejects all that wait and ends probing. Leases stay valid. */
  close(): void {
    this.#closing.abort(new Error('the router is closed'))
    for (const queue of this.#queues.values()) {
      for (const waiter of queue) waiter.reject(new UpstreamFault('none_healthy'))
    }
  }

  #targetsOf(model: string): readonly TargetState<T>[] {
    return this.#targetsByModel.get(model) ?? []
  }

  #noteOwner(owner: string): void {
    this.#askedAtMs.delete(owner)
    this.#askedAtMs.set(owner, this.#deps.clock.monotonicMs())
    if (this.#askedAtMs.size <= recentOwnersMax) return
    for (const longestAgo of this.#askedAtMs.keys().take(1)) this.#askedAtMs.delete(longestAgo)
  }

  /** Whether another organization has asked of late. */
  #hasOthers(owner: string): boolean {
    const sinceMs = this.#deps.clock.monotonicMs() - recentMs
    return this.#askedAtMs.entries().some(([other, atMs]) => other !== owner && atMs > sinceMs)
  }

  /** Whether it has a place for this organization. */
  #isFree(state: TargetState<T>, owner: string): boolean {
    const { active, activeByOwner, target } = state
    if (active >= target.concurrencyMax) return false
    const left = target.concurrencyMax < 2 ? 0 : shareOf(target.concurrencyMax, leftParts)
    const own = activeByOwner.get(owner) ?? 0
    return own < target.concurrencyMax - left || !this.#hasOthers(owner)
  }

  #lease(state: TargetState<T>, owner: string): Lease<T> {
    const startedMs = this.#deps.clock.monotonicMs()
    state.active += 1
    state.activeByOwner.set(owner, (state.activeByOwner.get(owner) ?? 0) + 1)
    state.served += 1
    state.leasedAtMs = startedMs
    let isOpen = true
    return {
      target: state.target,
      release: health => {
        if (!isOpen) return
        isOpen = false
        state.active -= 1
        const own = (state.activeByOwner.get(owner) ?? 1) - 1
        if (own === 0) state.activeByOwner.delete(owner)
        else state.activeByOwner.set(owner, own)
        state.leaseMs += newestShare * (this.#deps.clock.monotonicMs() - startedMs - state.leaseMs)
        if (health === 'healthy') state.failures = 0
        else if (health === 'unhealthy') this.#noteFailure(state)
        this.#serveQueues(state)
      },
    }
  }

  #enqueue(model: string, { except, signal, owner }: AcquireOptions<T>): Promise<Lease<T>> {
    const { clock, queueTimeoutMs } = this.#deps
    const queue = this.#queues.get(model) ?? new WaiterQueue<T>()
    this.#queues.set(model, queue)
    this.#makeRoom(model, queue, { except, owner })
    const { promise, resolve, reject } = Promise.withResolvers<Lease<T>>()
    const left = new AbortController()
    const leave = () => {
      queue.delete(waiter)
      left.abort()
      forget()
    }
    const waiter: Waiter<T> = {
      owner,
      except,
      resolve: lease => {
        leave()
        resolve(lease)
      },
      reject: error => {
        leave()
        reject(error)
      },
    }
    const forget = onAbort(signal, () => waiter.reject(signal.reason))
    queue.add(waiter)
    const onTimeout = () => {
      // Before the estimate, which covers the remaining waiters.
      leave()
      reject(this.#busyFault(model, except, `No upstream was free within ${queueTimeoutMs} ms.`))
    }
    clock.sleep(queueTimeoutMs, left.signal).then(onTimeout, () => {})
    return promise
  }

  /** The newest of the organization that has most in a full queue gives way. BusyFault: that is this one. */
  #makeRoom(model: string, queue: WaiterQueue<T>, asked: Pick<AcquireOptions<T>, 'except' | 'owner'>): void {
    if (queue.size < this.#deps.queueMax) return
    const tooMany = 'Too many requests wait for this model.'
    let most = { owner: asked.owner, count: (queue.byOwner.get(asked.owner) ?? 0) + 1 }
    for (const [owner, count] of queue.byOwner) if (count > most.count) most = { owner, count }
    const newest = most.owner === asked.owner ? null : [...queue].findLast(({ owner }) => owner === most.owner)
    if (!newest) throw this.#busyFault(model, asked.except, tooMany)
    newest.reject(this.#busyFault(model, newest.except, tooMany))
  }

  #serveQueues(state: TargetState<T>): void {
    for (const model of state.target.models) {
      for (let next = this.#next(state, model); next !== null; next = this.#next(state, model)) {
        next.resolve(this.#lease(state, next.owner))
      }
    }
  }

  /** The next waiter that this target can serve: fewest running requests of its organization here, then first come. */
  #next(state: TargetState<T>, model: string): Waiter<T> | null {
    if (state.ejected || state.active >= state.target.concurrencyMax) return null
    let next: Waiter<T> | null = null
    let fewest = Number.POSITIVE_INFINITY
    for (const waiter of this.#queues.get(model) ?? []) {
      const active = state.activeByOwner.get(waiter.owner) ?? 0
      if (active >= fewest || waiter.except.has(state.target) || !this.#isFree(state, waiter.owner)) continue
      next = waiter
      fewest = active
    }
    return next
  }

  /**
   * Estimates when a new request would get a target: leases last as long as recent ones and end evenly spread, at least
   * the time without an end apart; all waiters for these targets go first, and none gives up or is ejected.
   */
  #busyFault(model: string, except: ReadonlySet<T>, message: string): BusyFault {
    const nowMs = this.#deps.clock.monotonicMs()
    const servedModels = new Set<string>()
    let freedPerMs = 0
    for (const state of this.#targetsOf(model)) {
      if (!isEligible(state, except)) continue
      for (const served of state.target.models) servedModels.add(served)
      // All are at their limit, so no lease has ended on one since its newest began.
      freedPerMs += 1 / Math.max(state.leaseMs / state.active, nowMs - state.leasedAtMs)
    }
    const ahead = servedModels.values().reduce((sum, served) => sum + (this.#queues.get(served)?.size ?? 0), 0)
    return new BusyFault(message, Math.min(retryAfterSecondsMax, wholeSeconds((ahead + 1) / freedPerMs)))
  }

  /** Enough failures in a row cause a probe, which decides: requests that no upstream could serve eject none. */
  #noteFailure(state: TargetState<T>): void {
    state.failures += 1
    if (state.ejected || state.isJudged || state.failures < this.#deps.ejectFailures) return
    state.isJudged = true
    void this.#judge(state)
  }

  async #judge(state: TargetState<T>): Promise<void> {
    const { probe, log } = this.#deps
    const { failures, target } = state
    const isHealthy = await probe(target, this.#closing.signal).catch(() => false)
    state.isJudged = false
    if (this.#closing.signal.aborted) return
    if (isHealthy) {
      state.failures = 0
      log.warn('upstream failed requests in a row, but passes its probe; it stays', { upstream: target.name, failures })
      return
    }
    this.#eject(state)
  }

  #eject(state: TargetState<T>): void {
    state.ejected = true
    this.#deps.log.warn('upstream ejected', { upstream: state.target.name, failures: state.failures })
    void this.#probeUntilHealthy(state)
    // Waiters without a target left need not wait for their timeout.
    for (const model of state.target.models) {
      for (const waiter of this.#queues.get(model) ?? []) {
        const canBeServed = this.#targetsOf(model).some(other => isEligible(other, waiter.except))
        if (!canBeServed) waiter.reject(new UpstreamFault('none_healthy'))
      }
    }
  }

  async #probeUntilHealthy(state: TargetState<T>): Promise<void> {
    const { clock, ejectMs, probe, log } = this.#deps
    const closing = this.#closing.signal
    while (!closing.aborted) {
      state.probeDue = new AbortController()
      await pause(clock, ejectMs, AbortSignal.any([closing, state.probeDue.signal]))
      if (closing.aborted) return
      if (!(await probe(state.target, closing).catch(() => false))) continue
      state.ejected = false
      state.failures = 0
      log.info('upstream is back', { upstream: state.target.name })
      this.#serveQueues(state)
      return
    }
  }
}

/** Waiters for one model, in order of arrival. */
class WaiterQueue<T> extends Set<Waiter<T>> {
  readonly byOwner = new Map<string, number>()

  override add(waiter: Waiter<T>): this {
    this.byOwner.set(waiter.owner, (this.byOwner.get(waiter.owner) ?? 0) + 1)
    return super.add(waiter)
  }

  override delete(waiter: Waiter<T>): boolean {
    if (!super.delete(waiter)) return false
    const left = (this.byOwner.get(waiter.owner) ?? 1) - 1
    if (left === 0) this.byOwner.delete(waiter.owner)
    else this.byOwner.set(waiter.owner, left)
    return true
  }
}

function newTargetState<T>(target: T): TargetState<T> {
  return {
    target,
    active: 0,
    activeByOwner: new Map(),
    served: 0,
    leasedAtMs: 0,
    leaseMs: leaseMsInitial,
    failures: 0,
    ejected: false,
    isJudged: false,
    probeDue: new AbortController(),
  }
}

function isEligible<T>(state: TargetState<T>, except: ReadonlySet<T>): boolean {
  return !state.ejected && !except.has(state.target)
}

/** Negative: `a` has less load for its weight, or the same and has served less. */
function compareLoad(a: TargetState<RouterTarget>, b: TargetState<RouterTarget>): number {
  const byActive = (a.active + 1) / a.target.weight - (b.active + 1) / b.target.weight
  return byActive === 0 ? a.served / a.target.weight - b.served / b.target.weight : byActive
}
