// Open requests of this VM to its host, and the polls that wait for them. State in memory.
//
// The host polls with `next`. Every poll repeats the requests that are still open, so a restarted daemon can answer
// those its predecessor left.

import { type Clock, pause } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { HostRequest } from '../contract/vm/enclave-responses.ts'

type WithoutId<T> = T extends unknown ? Omit<T, 'id'> : never
export type NewHostRequest = WithoutId<HostRequest>

type OpenRequest = {
  readonly request: HostRequest
  readonly resolve: (answer: unknown) => void
  readonly reject: (error: unknown) => void
}

/** Bound of the wire (contract/vm/enclave.ts). No share: between this VM and its host. */
const hostRequestsMax = 16

export class HostRequests {
  readonly #clock: Clock
  readonly #open = new Map<string, OpenRequest>()
  #count = 0
  /** Wakes every `next` that waits. */
  #changed = Promise.withResolvers<void>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Resolves with the host's answer, unchecked. Fault attest.unavailable: no answer in time, or too many open. */
  async ask(request: NewHostRequest, timeoutMs: number): Promise<unknown> {
    if (this.#open.size >= hostRequestsMax)
      throw new Fault('attest.unavailable', `${hostRequestsMax} requests to the host are already open`)
    this.#count += 1
    const id = `w${this.#count}`
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    this.#open.set(id, { request: { id, ...request } as HostRequest, resolve, reject })
    this.wake()
    const ended = new AbortController()
    const late = this.#clock.sleep(timeoutMs, ended.signal).then(() => {
      throw new Fault('attest.unavailable', `the host has not answered within ${timeoutMs} ms: ${request.kind}`)
    })
    late.catch(() => {})
    try {
      return await Promise.race([promise, late])
    } finally {
      ended.abort()
      this.#open.delete(id)
    }
  }

  /** Returns false if the request is not open. */
  answer(id: string, kind: HostRequest['kind'], answer: unknown): boolean {
    const open = this.#open.get(id)
    if (open?.request.kind !== kind) return false
    open.resolve(answer)
    return true
  }

  refuse(id: string, kind: HostRequest['kind'], reason: string): boolean {
    const open = this.#open.get(id)
    if (open?.request.kind !== kind) return false
    open.reject(new Fault('attest.unavailable', `the host: ${reason}`))
    return true
  }

  /** Open requests that are not in `known`. */
  unknownTo(known: readonly string[]): HostRequest[] {
    return [...this.#open.values()].map(open => open.request).filter(({ id }) => !known.includes(id))
  }

  /** Wakes all polls. */
  wake(): void {
    this.#changed.resolve()
    this.#changed = Promise.withResolvers<void>()
  }

  /** Resolves at the next change, or after `timeoutMs`. */
  async waitForChange(timeoutMs: number): Promise<void> {
    const ended = new AbortController()
    await Promise.race([this.#changed.promise, pause(this.#clock, timeoutMs, ended.signal)])
    ended.abort()
  }
}
