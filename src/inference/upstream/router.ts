// Which upstream takes a request: the least loaded by weight, within its concurrency limit; a bounded queue; ejection and return. Effects: timers.

import { type Clock, onAbort, pause } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { wholeSeconds } from '../../http/window.ts'
import { BusyFault, UpstreamFault } from './fault.ts'

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

/** What a lease's end says about the target's health. `unknown`: the client has gone, or its request was invalid. */
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

type AcquireOptions<T> = { readonly except: ReadonlySet<T>; readonly signal: AbortSignal }

type TargetState<T> = {
  readonly target: T
  active: number
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
  readonly except: ReadonlySet<T>
  readonly resolve: (lease: Lease<T>) => void
  readonly reject: (error: unknown) => void
}

/** Assumed until a lease has ended. */
const leaseMsInitial = 1_000
/** Weight of the newest lease in the average. */
const newestShare = 0.2
const retryAfterSecondsMax = 60

export class Router<T extends RouterTarget> {
  readonly #deps: RouterDeps<T>
  readonly #targets: readonly TargetState<T>[]
  readonly #targetsByModel = new Map<string, TargetState<T>[]>()
  readonly #queues = new Map<string, Set<Waiter<T>>>()
  readonly #closing = new AbortController()

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
   * A lease at once when a target is free, else a promise of one. Throws, or rejects after waiting: UpstreamFault none_healthy; BusyFault when
   * the queue is full or the wait too long; the signal's reason when it is aborted.
   */
  acquire(model: string, { except, signal }: AcquireOptions<T>): Lease<T> | Promise<Lease<T>> {
    signal.throwIfAborted()
    let isAnyEligible = false
    let best: TargetState<T> | null = null
    for (const state of this.#targetsOf(model)) {
      if (!isEligible(state, except)) continue
      isAnyEligible = true
      if (isFree(state) && (best === null || compareLoad(state, best) < 0)) best = state
    }
    if (!isAnyEligible) throw new UpstreamFault('none_healthy')
    // No waiter is passed over: a target that becomes free goes to those that wait for it first.
    return best === null ? this.#enqueue(model, { except, signal }) : this.#lease(best)
  }

  view(): RouterView {
    return {
      waiting: this.#queues.values().reduce((sum, queue) => sum + queue.size, 0),
      targets: this.#targets.map(({ target, active, ejected }) => ({ name: target.name, active, ejected })),
    }
  }

  /** Probes the target now if it is ejected, because whoever runs it has seen that it is healthy. */
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

  #lease(state: TargetState<T>): Lease<T> {
    const startedMs = this.#deps.clock.monotonicMs()
    state.active += 1
    state.served += 1
    state.leasedAtMs = startedMs
    let isOpen = true
    return {
      target: state.target,
      release: health => {
        if (!isOpen) return
        isOpen = false
        state.active -= 1
        state.leaseMs += newestShare * (this.#deps.clock.monotonicMs() - startedMs - state.leaseMs)
        if (health === 'healthy') state.failures = 0
        else if (health === 'unhealthy') this.#noteFailure(state)
        this.#serveQueues(state)
      },
    }
  }

  #enqueue(model: string, { except, signal }: AcquireOptions<T>): Promise<Lease<T>> {
    const { clock, queueMax, queueTimeoutMs } = this.#deps
    const queue = this.#queues.get(model) ?? new Set()
    this.#queues.set(model, queue)
    if (queue.size >= queueMax) throw this.#busyFault(model, except, 'Too many requests wait for this model.')
    const { promise, resolve, reject } = Promise.withResolvers<Lease<T>>()
    const left = new AbortController()
    const leave = () => {
      queue.delete(waiter)
      left.abort()
      forget()
    }
    const waiter: Waiter<T> = {
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
      // First: the estimate is for those that are still in the queue.
      leave()
      reject(this.#busyFault(model, except, `No upstream was free within ${queueTimeoutMs} ms.`))
    }
    clock.sleep(queueTimeoutMs, left.signal).then(onTimeout, () => {})
    return promise
  }

  #serveQueues(state: TargetState<T>): void {
    for (const model of state.target.models) {
      for (const waiter of this.#queues.get(model) ?? []) {
        if (state.ejected || !isFree(state)) return
        if (!waiter.except.has(state.target)) waiter.resolve(this.#lease(state))
      }
    }
  }

  /**
   * When a new request would get a target, by estimate: leases last as long as they lately did and end evenly spread, at least as far apart as
   * the time in which none has ended; all that wait for one of these targets go first, and none of them gives up or is ejected.
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

  /** Enough failures in a row are a suspicion; the probe decides, so that requests which nobody could serve eject nobody. */
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

function newTargetState<T>(target: T): TargetState<T> {
  return {
    target,
    active: 0,
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

function isFree({ active, target }: TargetState<RouterTarget>): boolean {
  return active < target.concurrencyMax
}

/** Negative: `a` has less load for its weight, or the same and has served less. */
function compareLoad(a: TargetState<RouterTarget>, b: TargetState<RouterTarget>): number {
  const byActive = (a.active + 1) / a.target.weight - (b.active + 1) / b.target.weight
  return byActive === 0 ? a.served / a.target.weight - b.served / b.target.weight : byActive
}
