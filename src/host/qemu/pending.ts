// Requests that wait for the response with their id, each with its own deadline. Effects: timers only.

import { Fault, type FaultCode } from '../../base/fault.ts'

export type PendingOptions = {
  /** Maximum number of requests that wait at the same time. */
  readonly countMax: number
  /** Code of the Fault if no response arrives in time. */
  readonly late: FaultCode
  /** Code of the Fault if too many wait. */
  readonly full: FaultCode
}

type Waiter<T> = { readonly resolve: (value: T) => void; readonly reject: (fault: Fault) => void }

export class Pending<T> {
  readonly #options: PendingOptions
  readonly #waiting = new Map<string, Waiter<T>>()

  constructor(options: PendingOptions) {
    this.#options = options
  }

  /** Waits for the response with this id; `what` names the request in Faults (of `late` and `full`). */
  add(id: string, timeoutMs: number, what: string): Promise<T> {
    const { countMax, late, full } = this.#options
    if (this.#waiting.size >= countMax) {
      return Promise.reject(new Fault(full, `${what}: ${countMax} requests wait already`))
    }
    const { promise, resolve, reject } = Promise.withResolvers<T>()
    const timer = setTimeout(() => {
      this.#waiting.delete(id)
      reject(new Fault(late, `${what}: no response within ${timeoutMs} ms`))
    }, timeoutMs)
    const settle = () => {
      clearTimeout(timer)
      this.#waiting.delete(id)
    }
    this.#waiting.set(id, {
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
  }

  has(id: string): boolean {
    return this.#waiting.has(id)
  }

  /** Resolves a request. No effect if none waits for this id: the response is late, repeated, or unrequested. */
  resolve(id: string, value: T): void {
    this.#waiting.get(id)?.resolve(value)
  }

  /** Rejects a request. No effect if none waits for this id. */
  reject(id: string, fault: Fault): void {
    this.#waiting.get(id)?.reject(fault)
  }

  rejectAll(fault: Fault): void {
    for (const waiter of [...this.#waiting.values()]) waiter.reject(fault)
  }
}
