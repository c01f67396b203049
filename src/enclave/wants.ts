// Open requests of this VM to its host, and the polls that wait for them. State in memory.
//
// The host polls with `next`. Every poll repeats the requests that are still open, so a restarted daemon can answer
// those its predecessor left.

import { type Clock, pause } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { Want } from '../contract/vm/enclave.ts'

type WithoutId<T> = T extends unknown ? Omit<T, 'id'> : never
export type NewWant = WithoutId<Want>

type Open = {
  readonly want: Want
  readonly resolve: (answer: unknown) => void
  readonly reject: (error: unknown) => void
}

/** As the wire allows (contract/vm/enclave.ts). No share: between this VM and its host. */
const wantsMax = 16

export class Wants {
  readonly #clock: Clock
  readonly #open = new Map<string, Open>()
  #count = 0
  /** Wakes every `next` that waits. */
  #news = Promise.withResolvers<void>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Resolves with the host's answer, unchecked. Fault attest.unavailable: no answer in time, or too many open. */
  async ask(wanted: NewWant, timeoutMs: number): Promise<unknown> {
    if (this.#open.size >= wantsMax)
      throw new Fault('attest.unavailable', `${wantsMax} requests to the host are open already`)
    this.#count += 1
    const id = `w${this.#count}`
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    this.#open.set(id, { want: { id, ...wanted } as Want, resolve, reject })
    this.wake()
    const ended = new AbortController()
    const late = this.#clock.sleep(timeoutMs, ended.signal).then(() => {
      throw new Fault('attest.unavailable', `the host has not answered within ${timeoutMs} ms: ${wanted.kind}`)
    })
    late.catch(() => {})
    try {
      return await Promise.race([promise, late])
    } finally {
      ended.abort()
      this.#open.delete(id)
    }
  }

  /** False: the request is not open, or no longer. */
  answer(id: string, kind: Want['kind'], answer: unknown): boolean {
    const open = this.#open.get(id)
    if (open?.want.kind !== kind) return false
    open.resolve(answer)
    return true
  }

  refuse(id: string, kind: Want['kind'], reason: string): boolean {
    const open = this.#open.get(id)
    if (open?.want.kind !== kind) return false
    open.reject(new Fault('attest.unavailable', `the host: ${reason}`))
    return true
  }

  /** Open requests that are not in `known`. */
  unknownTo(known: readonly string[]): Want[] {
    return [...this.#open.values()].map(open => open.want).filter(want => !known.includes(want.id))
  }

  /** Wakes all polls. */
  wake(): void {
    this.#news.resolve()
    this.#news = Promise.withResolvers<void>()
  }

  /** Resolves at the next news, or after `timeoutMs`. */
  async news(timeoutMs: number): Promise<void> {
    const ended = new AbortController()
    await Promise.race([this.#news.promise, pause(this.#clock, timeoutMs, ended.signal)])
    ended.abort()
  }
}
