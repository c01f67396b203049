// Chooses the upstream of a request: the least loaded by weight, within its concurrency limit; a bounded queue;
// ejection and return. Effects: timers.
//
// Fairness: slots go to organizations, then to their keys (fair-share.ts); a full queue drops the newest request of the
// key with the most, in the organization with the most.

import { type Clock, onAbort, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { wholeSeconds } from '../../http/window.ts'
import { BusyFault, UpstreamFault } from '../failure.ts'
import { type Owner, RecentOwners, UpstreamSlots } from './fair-share.ts'
import { type QueuePlace, stepped } from './queue.ts'
import { Waiters } from './waiters.ts'

export type RouterTarget = {
  readonly name: string
  readonly models: readonly string[]
  readonly weight: number
  readonly concurrencyMax: number
}

export type RouterDeps<T extends RouterTarget> = RouterSettings & {
  readonly targets: readonly T[]
  /** Reports whether a target is healthy; called before it is ejected, and until it is used again. */
  readonly probe: (target: T, signal: AbortSignal) => Promise<boolean>
  /** Reports whether a target may get requests now, apart from its health. Default: always. */
  readonly mayServe?: (target: T) => boolean
  readonly clock: Clock
  readonly log: Logger
}

export type RouterSettings = {
  /** Maximum number of requests that wait for one model. */
  readonly queueMax: number
  readonly queueTimeoutMs: number
  /** Number of consecutive failures that eject a target. */
  readonly ejectFailures: number
  /** Time between ejection and probe, and between probes. */
  readonly ejectMs: number
}

/** Health of the target as shown by a lease's end. `unknown`: the client left, or its request was invalid. */
export type TargetHealth = 'healthy' | 'unhealthy' | 'unknown'

/** One request's use of a target. */
export type Lease<T> = {
  readonly target: T
  /** Estimated time between two requests that the target completes. */
  readonly paceMs: number
  /** Ends the lease. Further calls have no effect. */
  readonly release: (health: TargetHealth) => void
}

export type RouterTargetView = {
  readonly name: string
  readonly active: number
  readonly ejected: boolean
}

export type RouterView = {
  /** Number of requests in the queues. */
  readonly waiting: number
  readonly targets: readonly RouterTargetView[]
}

type AcquireOptions<T> = {
  /** Names the request for `place`. */
  readonly id?: string
  readonly except: ReadonlySet<T>
  readonly signal: AbortSignal
  readonly owner: Owner
}

type TargetState<T> = {
  readonly target: T
  readonly places: UpstreamSlots
  served: number
  /** When its newest lease began. */
  leasedAtMs: number
  /** Moving average of how long leases last. */
  leaseMs: number
  failures: number
  ejected: boolean
  /** Whether a running probe decides whether it is ejected. */
  isJudged: boolean
  /** Aborted when the next probe is due now. */
  probeDue: AbortController
}

type Waiter<T> = {
  readonly owner: Owner
  readonly except: ReadonlySet<T>
  readonly resolve: (lease: Lease<T>) => void
  readonly reject: (error: unknown) => void
}

/** Assumed until the first lease has ended. */
const leaseMsInitial = 1_000
/** Weight of the newest lease in the average. */
const newestShare = 0.2
const retryAfterSecondsMax = 60

export class Router<T extends RouterTarget> {
  readonly #deps: RouterDeps<T>
  readonly #targets: readonly TargetState<T>[]
  readonly #targetsByModel = new Map<string, TargetState<T>[]>()
  readonly #queues = new Map<string, Waiters<Waiter<T>>>()
  /** Waiting requests that have an id. */
  readonly #waiting = new Map<string, () => QueuePlace>()
  readonly #closing = new AbortController()
  readonly #recent = new RecentOwners()

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
   * Returns a lease immediately if a target is free, otherwise a promise. Throws, or rejects after waiting:
   * UpstreamFault none_healthy, unattested; BusyFault if the queue is full or the wait too long; the signal's reason if
   * it is aborted.
   */
  acquire(model: string, options: AcquireOptions<T>): Lease<T> | Promise<Lease<T>> {
    const { except, signal, owner } = options
    signal.throwIfAborted()
    const nowMs = this.#deps.clock.monotonicMs()
    this.#recent.note(owner, nowMs)
    let isAnyEligible = false
    let isAnyBarred = false
    let best: TargetState<T> | null = null
    for (const state of this.#targetsOf(model)) {
      if (!isEligible(state, except)) continue
      if (!this.#mayServe(state)) {
        isAnyBarred = true
        continue
      }
      isAnyEligible = true
      if (this.#isFree(state, owner, nowMs) && (best === null || compareLoad(state, best) < 0)) best = state
    }
    if (!isAnyEligible) throw new UpstreamFault(isAnyBarred ? 'unattested' : 'none_healthy')
    // No waiter is skipped: a free target goes to its first waiter.
    return best === null ? this.#enqueue(model, options) : this.#lease(best, owner, nowMs)
  }

  /** Returns the request's place; null if it does not wait. */
  place(id: string): QueuePlace | null {
    return this.#waiting.get(id)?.() ?? null
  }

  view(): RouterView {
    return {
      waiting: this.#queues.values().reduce((sum, queue) => sum + queue.size, 0),
      targets: this.#targets.map(({ target, places, ejected }) => ({
        name: target.name,
        active: places.held,
        ejected,
      })),
    }
  }

  /** Probes the target now if it is ejected, because its owner has found it healthy. */
  probeNow(name: string): void {
    for (const state of this.#targets) if (state.target.name === name && state.ejected) state.probeDue.abort()
  }

  /** Rejects all waiting requests and ends probing. Leases stay valid. */
  close(): void {
    this.#closing.abort(new Error('the router is closed'))
    for (const queue of this.#queues.values()) {
      for (const waiter of queue) waiter.reject(new UpstreamFault('none_healthy'))
    }
  }

  #targetsOf(model: string): readonly TargetState<T>[] {
    return this.#targetsByModel.get(model) ?? []
  }

  #mayServe({ target }: TargetState<T>): boolean {
    return this.#deps.mayServe?.(target) ?? true
  }

  #isFree({ places }: TargetState<T>, owner: Owner, nowMs: number): boolean {
    return !places.isFull && places.isFree(owner, this.#recent.others(owner, nowMs))
  }

  #lease(state: TargetState<T>, owner: Owner, startedMs: number): Lease<T> {
    const giveBack = state.places.take(owner, startedMs)
    state.served += 1
    state.leasedAtMs = startedMs
    let isOpen = true
    return {
      target: state.target,
      paceMs: state.leaseMs / state.places.held,
      release: health => {
        if (!isOpen) return
        isOpen = false
        const nowMs = this.#deps.clock.monotonicMs()
        giveBack(nowMs)
        state.leaseMs += newestShare * (nowMs - startedMs - state.leaseMs)
        if (health === 'healthy') state.failures = 0
        else if (health === 'unhealthy') this.#noteFailure(state)
        this.#serveQueues(state)
      },
    }
  }

  #enqueue(model: string, { id, except, signal, owner }: AcquireOptions<T>): Promise<Lease<T>> {
    const { clock, queueTimeoutMs } = this.#deps
    const queue = this.#queues.get(model) ?? new Waiters<Waiter<T>>()
    this.#queues.set(model, queue)
    this.#makeRoom(model, queue, { except, owner })
    const { promise, resolve, reject } = Promise.withResolvers<Lease<T>>()
    const left = new AbortController()
    const place = () => this.#placeOf(model, waiter)
    const leave = () => {
      queue.delete(waiter)
      if (id !== undefined && this.#waiting.get(id) === place) this.#waiting.delete(id)
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
    if (id !== undefined) this.#waiting.set(id, place)
    const onTimeout = () => {
      // Taken before the estimate, which covers the remaining waiters.
      const { position } = place()
      leave()
      const words = `No engine was free within ${queueTimeoutMs} ms. The request was at position ${stepped(position)}.`
      reject(this.#busyFault(model, except, words))
    }
    clock.sleep(queueTimeoutMs, left.signal).then(onTimeout, () => {})
    return promise
  }

  /** Makes room in a queue. Throws BusyFault if the queue is full and no waiter can be dropped. */
  #makeRoom(
    model: string,
    queue: Waiters<Waiter<T>>,
    { except, owner }: Pick<AcquireOptions<T>, 'except' | 'owner'>,
  ): void {
    if (queue.size < this.#deps.queueMax) return
    const newest = queue.givesWay(owner)
    const { position } = this.#placeOf(model, newest ?? { except, owner })
    const tooMany = `Too many requests wait for this model. This one was at position ${stepped(position)}.`
    const fault = this.#busyFault(model, newest?.except ?? except, tooMany)
    if (newest === null) throw fault
    newest.reject(fault)
  }

  /**
   * Counts the turns until the request is served, its own included: in each queue, another key of its organization, or
   * another organization, goes first at most as often as its own.
   */
  #placeOf(model: string, waiter: Waiter<T> | Pick<Waiter<T>, 'owner' | 'except'>): QueuePlace {
    const { owner, except } = waiter
    const { freedPerMs, queues } = this.#outlook(model, except)
    const own = this.#queues.get(model)
    const all = [...new Set(own === undefined ? queues : [own, ...queues])]
    const sum = (count: (queue: Waiters<Waiter<T>>) => number) => all.reduce((total, queue) => total + count(queue), 0)
    const ofKey = ('resolve' in waiter ? own?.rank(waiter) : null) ?? 1 + sum(queue => queue.count(owner))
    const ofOrganization = ofKey + sum(queue => queue.ofOtherKeys(owner, ofKey))
    const position = ofOrganization + sum(queue => queue.ofOtherOrganizations(owner, ofOrganization))
    return { position, waitMs: freedPerMs > 0 ? position / freedPerMs : null }
  }

  #serveQueues(state: TargetState<T>): void {
    for (let next = this.#next(state); next !== null; next = this.#next(state)) {
      next.resolve(this.#lease(state, next.owner, this.#deps.clock.monotonicMs()))
    }
  }

  /** Returns the next waiter, over all its models, that this target can serve. */
  #next(state: TargetState<T>): Waiter<T> | null {
    const { target, places, ejected } = state
    if (ejected || places.isFull || !this.#mayServe(state)) return null
    const mayTake = ({ except, owner }: Waiter<T>) =>
      !except.has(target) && this.#isFree(state, owner, this.#deps.clock.monotonicMs())
    let next: Waiter<T> | null = null
    for (const model of target.models) {
      const first = this.#queues.get(model)?.next(places, mayTake) ?? null
      if (first !== null && (next === null || places.compare(first.owner, next.owner) < 0)) next = first
    }
    return next
  }

  /**
   * Estimates when a new request would get a target. Assumes that leases last as long as recent ones and end evenly
   * spread, at least as far apart as the time since one ended; that all waiters for these targets go first, and that
   * none gives up or is ejected.
   */
  #busyFault(model: string, except: ReadonlySet<T>, message: string): BusyFault {
    const { freedPerMs, queues } = this.#outlook(model, except)
    const ahead = queues.reduce((sum, queue) => sum + queue.size, 0)
    return new BusyFault(message, Math.min(retryAfterSecondsMax, wholeSeconds((ahead + 1) / freedPerMs)))
  }

  /** Returns how often a slot is freed, and the queues that share these slots. */
  #outlook(model: string, except: ReadonlySet<T>): { freedPerMs: number; queues: Waiters<Waiter<T>>[] } {
    const nowMs = this.#deps.clock.monotonicMs()
    const servedModels = new Set<string>()
    let freedPerMs = 0
    for (const state of this.#targetsOf(model)) {
      if (!isEligible(state, except)) continue
      for (const served of state.target.models) servedModels.add(served)
      // All slots are in use, so no lease has ended since the newest began.
      freedPerMs += 1 / Math.max(state.leaseMs / state.places.held, nowMs - state.leasedAtMs)
    }
    return { freedPerMs, queues: [...servedModels].flatMap(served => this.#queues.get(served) ?? []) }
  }

  /**
   * Counts a failure. Several in a row cause a probe, which decides, so that requests that no upstream could serve
   * eject none.
   */
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
      log.warn('upstream failed several requests in a row but passes its probe; it stays in use', {
        upstream: target.name,
        failures,
      })
      return
    }
    this.#eject(state)
  }

  #eject(state: TargetState<T>): void {
    state.ejected = true
    this.#deps.log.warn('upstream ejected', { upstream: state.target.name, failures: state.failures })
    void this.#probeUntilHealthy(state)
    // Waiters for which no target remains need not wait for their timeout.
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
      log.info('upstream is available again', { upstream: state.target.name })
      this.#serveQueues(state)
      return
    }
  }
}

function newTargetState<T extends RouterTarget>(target: T): TargetState<T> {
  return {
    target,
    places: new UpstreamSlots(target.concurrencyMax),
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

/** Returns a negative number if `a` has less load for its weight, or the same load and has served less. */
function compareLoad(a: TargetState<RouterTarget>, b: TargetState<RouterTarget>): number {
  const byActive = (a.places.held + 1) / a.target.weight - (b.places.held + 1) / b.target.weight
  return byActive === 0 ? a.served / a.target.weight - b.served / b.target.weight : byActive
}
