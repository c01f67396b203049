// Questions that wait for the answer with their id, each with its own deadline. Effects: timers only.

import { Fault, type FaultCode } from '../../base/fault.ts'

export type Pending<T> = {
  /** Registers a question; rejects with the Fault of `late` when no answer comes in time. Fault `full` when too many wait. */
  readonly ask: (id: string, timeoutMs: number, what: string) => Promise<T>
  readonly waits: (id: string) => boolean
  /** False when nobody waits for this id: a late answer, a second one, or one that nobody asked for. */
  readonly answer: (id: string, value: T) => boolean
  readonly refuse: (id: string, fault: Fault) => boolean
  /** Rejects everything that waits. */
  readonly refuseAll: (fault: Fault) => void
}

export type PendingOptions = { readonly countMax: number; readonly late: FaultCode; readonly full: FaultCode }

export function createPending<T>({ countMax, late, full }: PendingOptions): Pending<T> {
  const waiting = new Map<string, { resolve: (value: T) => void; reject: (fault: Fault) => void }>()
  return {
    ask: (id, timeoutMs, what) => {
      if (waiting.size >= countMax)
        return Promise.reject(new Fault(full, `${what}: ${countMax} questions wait already`))
      const { promise, resolve, reject } = Promise.withResolvers<T>()
      const timer = setTimeout(() => {
        waiting.delete(id)
        reject(new Fault(late, `${what}: no answer within ${timeoutMs} ms`))
      }, timeoutMs)
      const settle = () => {
        clearTimeout(timer)
        waiting.delete(id)
      }
      waiting.set(id, {
        resolve: value => {
          settle()
          resolve(value)
        },
        reject: fault => {
          settle()
          reject(fault)
        },
      })
      return promise
    },
    waits: id => waiting.has(id),
    answer: (id, value) => {
      const waiter = waiting.get(id)
      waiter?.resolve(value)
      return waiter !== undefined
    },
    refuse: (id, fault) => {
      const waiter = waiting.get(id)
      waiter?.reject(fault)
      return waiter !== undefined
    },
    refuseAll: fault => {
      for (const waiter of [...waiting.values()]) waiter.reject(fault)
    },
  }
}
