// Which upstream takes a request: the least busy by weight, within its cap; a bounded queue before them; ejection and return. Effects: timers.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { wholeSeconds } from '../limits/limiter.ts'
import { UpstreamFault } from './fault.ts'

export type RouterTarget = {
  readonly name: string
  readonly models: readonly string[]
  readonly weight: number
  readonly concurrencyMax: number
}

export type RouterDeps<T extends RouterTarget> = {
  readonly targets: readonly T[]
  /** Whether an ejected target is well again. */
  readonly probe: (target: T, signal: AbortSignal) => Promise<boolean>
  readonly clock: Clock
  readonly log: Logger
  readonly queueMax: number
  readonly queueTimeoutMs: number
  readonly ejectFailures: number
  readonly ejectMs: number
}

/** `neutral` says nothing about its health: the client went, or asked for what cannot be. */
export type LeaseEnd = 'well' | 'unwell' | 'neutral'

export type Lease<T> = {
  readonly target: T
  /** Frees the place, once; further calls do nothing. */
  readonly release: (end: LeaseEnd) => void
}

export type RouterTargetView = {
  readonly name: string
  readonly active: number
  readonly ejected: boolean
}

export type Router<T> = {
  /**
   * A lease at once where a place is free, else a promise of one. Throws, or rejects after waiting: UpstreamFault none_well; BusyFault when
   * too many wait or it takes too long; the signal's reason when it aborts.
   */
  readonly acquire: (
    model: string,
    options: { except: ReadonlySet<T>; signal: AbortSignal },
  ) => Lease<T> | Promise<Lease<T>>
  /** Requests that wait, and targets, for metrics. */
  readonly view: () => { readonly waiting: number; readonly targets: readonly RouterTargetView[] }
  /** Whoever runs a target says that it is well: an ejected one is probed now, not when its time comes. */
  readonly hint: (name: string) => void
  readonly close: () => void
}

/** Fault rate_limited: every place is taken, for about so long. */
export class BusyFault extends Fault {
  /** Whole, 1 to 60. */
  readonly retryAfterSeconds: number

  constructor(message: string, retryAfterSeconds: number) {
    super('rate_limited', message)
    this.retryAfterSeconds = retryAfterSeconds
  }
}

type Slot<T> = {
  readonly target: T
  active: number
  served: number
  /** When its newest lease began. */
  leasedAtMs: number
  /** Moving average of how long leases last. */
  leaseMs: number
  failures: number
  ejected: boolean
  /** Ends the pause before the next probe. */
  hurry: AbortController
}
type Waiter<T> = {
  readonly model: string
  readonly except: ReadonlySet<T>
  readonly give: (lease: Lease<T>) => void
  readonly refuse: (error: unknown) => void
}

const leaseGuessMs = 1_000
/** Weight of the newest lease in the average. */
const newestShare = 0.2
const retryAfterSecondsMax = 60

export function createRouter<T extends RouterTarget>(deps: RouterDeps<T>): Router<T> {
  const slots = deps.targets.map(
    (target): Slot<T> => ({
      ...{ target, active: 0, served: 0, leasedAtMs: 0, leaseMs: leaseGuessMs, failures: 0, ejected: false },
      hurry: new AbortController(),
    }),
  )
  const byModel = new Map<string, Slot<T>[]>()
  for (const slot of slots) {
    for (const model of new Set(slot.target.models)) byModel.set(model, [...(byModel.get(model) ?? []), slot])
  }
  const waiting = new Map<string, Set<Waiter<T>>>()
  const closing = new AbortController()

  const slotsOf = (model: string): readonly Slot<T>[] => byModel.get(model) ?? []
  const isAble = (slot: Slot<T>, except: ReadonlySet<T>) => !slot.ejected && !except.has(slot.target)

  const lease = (slot: Slot<T>): Lease<T> => {
    const startedMs = deps.clock.monotonicMs()
    slot.active += 1
    slot.served += 1
    slot.leasedAtMs = startedMs
    let isOpen = true
    return {
      target: slot.target,
      release: end => {
        if (!isOpen) return
        isOpen = false
        slot.active -= 1
        slot.leaseMs += newestShare * (deps.clock.monotonicMs() - startedMs - slot.leaseMs)
        if (end === 'well') slot.failures = 0
        else if (end === 'unwell') noteFailure(slot)
        serveWaiters(slot)
      },
    }
  }

  /**
   * An estimate of when a newcomer would get a place: leases last as long as they lately did and end evenly spread, at least as far apart as
   * none has ended by now; whoever waits for one of these targets goes first, and nobody leaves or is ejected.
   */
  const busy = (model: string, except: ReadonlySet<T>, message: string): BusyFault => {
    const nowMs = deps.clock.monotonicMs()
    const ahead = new Set<string>()
    let freedPerMs = 0
    for (const slot of slotsOf(model)) {
      if (!isAble(slot, except)) continue
      for (const served of slot.target.models) ahead.add(served)
      // All are full, so none of these has freed a place since its newest lease.
      freedPerMs += 1 / Math.max(slot.leaseMs / slot.active, nowMs - slot.leasedAtMs)
    }
    const waiters = [...ahead].reduce((sum, served) => sum + (waiting.get(served)?.size ?? 0), 0)
    return new BusyFault(message, Math.min(retryAfterSecondsMax, wholeSeconds((waiters + 1) / freedPerMs)))
  }

  const noteFailure = (slot: Slot<T>) => {
    slot.failures += 1
    if (slot.ejected || slot.failures < deps.ejectFailures) return
    slot.ejected = true
    deps.log.warn('upstream ejected', { upstream: slot.target.name, failures: slot.failures })
    void probeBack(slot)
    // Who waits for nothing any more is told at once.
    for (const model of slot.target.models) {
      for (const waiter of waiting.get(model) ?? []) {
        if (!slotsOf(model).some(other => isAble(other, waiter.except))) waiter.refuse(new UpstreamFault('none_well'))
      }
    }
  }

  const probeBack = async (slot: Slot<T>) => {
    while (!closing.signal.aborted) {
      slot.hurry = new AbortController()
      await deps.clock.sleep(deps.ejectMs, AbortSignal.any([closing.signal, slot.hurry.signal])).catch(() => {})
      if (closing.signal.aborted) return
      if (!(await deps.probe(slot.target, closing.signal).catch(() => false))) continue
      slot.ejected = false
      slot.failures = 0
      deps.log.info('upstream is back', { upstream: slot.target.name })
      serveWaiters(slot)
      return
    }
  }

  const serveWaiters = (slot: Slot<T>) => {
    for (const model of slot.target.models) {
      for (const waiter of waiting.get(model) ?? []) {
        if (slot.ejected || slot.active >= slot.target.concurrencyMax) return
        if (!waiter.except.has(slot.target)) waiter.give(lease(slot))
      }
    }
  }

  const wait = (model: string, except: ReadonlySet<T>, signal: AbortSignal): Promise<Lease<T>> => {
    const queue = waiting.get(model) ?? new Set()
    waiting.set(model, queue)
    if (queue.size >= deps.queueMax) throw busy(model, except, 'Too many requests wait for this model.')
    return new Promise((resolve, reject) => {
      const ended = new AbortController()
      const leave = () => {
        queue.delete(waiter)
        ended.abort()
        signal.removeEventListener('abort', onAbort)
      }
      const refuse = (error: unknown) => {
        leave()
        reject(error)
      }
      const onLate = () => {
        leave()
        reject(busy(model, except, `No upstream was free within ${deps.queueTimeoutMs} ms.`))
      }
      const onAbort = () => refuse(signal.reason)
      const waiter: Waiter<T> = {
        model,
        except,
        give: given => {
          leave()
          resolve(given)
        },
        refuse,
      }
      queue.add(waiter)
      signal.addEventListener('abort', onAbort, { once: true })
      deps.clock.sleep(deps.queueTimeoutMs, ended.signal).then(onLate, () => {})
    })
  }

  return {
    acquire: (model, { except, signal }) => {
      signal.throwIfAborted()
      let isAnyAble = false
      let best: Slot<T> | null = null
      for (const slot of slotsOf(model)) {
        if (!isAble(slot, except)) continue
        isAnyAble = true
        if (slot.active < slot.target.concurrencyMax && (best === null || compareLoad(slot, best) < 0)) best = slot
      }
      if (!isAnyAble) throw new UpstreamFault('none_well')
      // A free place is nobody else's: whoever waits and could have it was given it when it became free.
      return best === null ? wait(model, except, signal) : lease(best)
    },
    view: () => ({
      waiting: [...waiting.values()].reduce((sum, queue) => sum + queue.size, 0),
      targets: slots.map(({ target, active, ejected }) => ({ name: target.name, active, ejected })),
    }),
    hint: name => {
      for (const slot of slots) if (slot.target.name === name && slot.ejected) slot.hurry.abort()
    },
    close: () => {
      closing.abort(new Error('the router is closed'))
      for (const queue of waiting.values()) {
        for (const waiter of queue) waiter.refuse(new UpstreamFault('none_well'))
      }
    },
  }
}

/** Negative: `a` has the less load for its weight; of equals the one that has served less. */
function compareLoad(a: Slot<RouterTarget>, b: Slot<RouterTarget>): number {
  const byActive = (a.active + 1) / a.target.weight - (b.active + 1) / b.target.weight
  return byActive === 0 ? a.served / a.target.weight - b.served / b.target.weight : byActive
}
