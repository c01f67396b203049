// Addresses from our DNS that are open to instances until they expire. Effects: its own memory; reads a clock.

import type { Clock } from '../../base/clock.ts'
import { type NamedAddress, namedAddressesMax } from './egress-names.plan.ts'

export type NamedAddressLimits = {
  readonly countMax: number
  /** Maximum number of addresses that one instance may open, so that it cannot take all slots. */
  readonly countOfOneMax: number
}

const defaultLimits: NamedAddressLimits = { countMax: namedAddressesMax, countOfOneMax: namedAddressesMax / 8 }
/** Minimum time between purges of expired addresses when no slot is left. */
const purgeIntervalMs = 1_000

type AddressLease = { readonly untilMs: number; readonly by: string }

export class NamedAddresses {
  readonly #clock: Pick<Clock, 'monotonicMs'>
  readonly #limits: NamedAddressLimits
  readonly #kept = new Map<string, AddressLease>()
  readonly #countBy = new Map<string, number>()
  #purgedAtMs = Number.NEGATIVE_INFINITY

  constructor(clock: Pick<Clock, 'monotonicMs'>, limits: NamedAddressLimits = defaultLimits) {
    this.#clock = clock
    this.#limits = limits
  }

  /** Opens an address. Returns false if no slot is left, in total or for `by` (an instance's address). */
  keep({ address, timeoutMs }: NamedAddress, by: string): boolean {
    const nowMs = this.#clock.monotonicMs()
    const untilMs = nowMs + timeoutMs
    const known = this.#kept.get(address)
    if (known !== undefined) {
      this.#kept.set(address, { ...known, untilMs: Math.max(known.untilMs, untilMs) })
      return true
    }
    if (!this.#hasPlace(by) && nowMs - this.#purgedAtMs >= purgeIntervalMs) this.#purge(nowMs)
    if (!this.#hasPlace(by)) return false
    this.#kept.set(address, { untilMs, by })
    this.#countBy.set(by, (this.#countBy.get(by) ?? 0) + 1)
    return true
  }

  /** Returns each address with its remaining time. */
  list(): NamedAddress[] {
    const nowMs = this.#clock.monotonicMs()
    this.#purge(nowMs)
    return [...this.#kept].map(([address, { untilMs }]) => ({ address, timeoutMs: untilMs - nowMs }))
  }

  #hasPlace(by: string): boolean {
    const { countMax, countOfOneMax } = this.#limits
    return this.#kept.size < countMax && (this.#countBy.get(by) ?? 0) < countOfOneMax
  }

  #purge(nowMs: number): void {
    this.#purgedAtMs = nowMs
    for (const [address, { untilMs, by }] of this.#kept) {
      if (untilMs > nowMs) continue
      this.#kept.delete(address)
      const left = (this.#countBy.get(by) ?? 1) - 1
      if (left === 0) this.#countBy.delete(by)
      else this.#countBy.set(by, left)
    }
  }
}
