// Order of attestations: one at a time, networks with the least recent use first, so that light users do not wait for
// heavy ones. The queue is bounded; at the bound, the waiter whose networks have used most is dropped. Effects:
// timers.

import { type Clock, onAbort, pause } from '../../base/clock.ts'
import { type Network, type NetworkWidth, networksOf } from '../../http/client-network.ts'

export type TurnsDeps = {
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
  /** Includes the caller whose turn it is. */
  readonly callersMax: number
  /** Least time between the starts of two turns. */
  readonly gapMs: number
  /** Networks of each width that are remembered; about 0.2 KB each. */
  readonly networksMax?: number
}

type QueuedAttestation = {
  readonly networks: readonly Network[]
  readonly begin: () => Promise<unknown>
  readonly refuse: () => void
}

type NetworkUse = { amount: number; atMs: number }

/** The wider a network, the more clients it has, so its use is divided by this factor. */
const WEIGHTS: Readonly<Record<NetworkWidth, number>> = { narrow: 1, middle: 2, wide: 8 }
/** Half-life of a network's recorded use. */
const halfLifeMs = 60_000
/** No share: the networks with the fewest requests are dropped, and start over. */
const networksMaxDefault = 8_192

export class NetworkTurns {
  readonly #deps: TurnsDeps
  readonly #used = new Map<string, NetworkUse>()
  readonly #waiting: QueuedAttestation[] = []
  #isBusy = false
  #nextAtMs = Number.NEGATIVE_INFINITY

  constructor(deps: TurnsDeps) {
    this.#deps = deps
  }

  /** Callers that wait or have their turn. */
  get size(): number {
    return this.#waiting.length + (this.#isBusy ? 1 : 0)
  }

  /** Networks that are remembered. */
  get networks(): number {
    return this.#used.size
  }

  /**
   * Returns the result of `work`. Null if the queue is full of lighter users, or this caller was dropped. Rejects if
   * aborted.
   */
  run<T>(address: string, signal: AbortSignal, work: () => Promise<T>): Promise<T | null> {
    const networks = networksOf(address)
    const { promise, resolve, reject } = Promise.withResolvers<T | null>()
    if (signal.aborted || !this.#makeRoom(networks))
      return signal.aborted ? Promise.reject(signal.reason) : Promise.resolve(null)
    this.#charge(networks)
    const waiting: QueuedAttestation = {
      networks,
      begin: () => {
        forget()
        return work().then(resolve, reject)
      },
      refuse: () => {
        forget()
        resolve(null)
      },
    }
    const forget = onAbort(signal, () => {
      if (this.#remove(waiting)) reject(signal.reason)
    })
    this.#waiting.push(waiting)
    if (!this.#isBusy) void this.#serve()
    return promise
  }

  /** Returns false if no waiter has used more than these networks. */
  #makeRoom(networks: readonly Network[]): boolean {
    if (this.size < this.#deps.callersMax) return true
    const nowMs = this.#deps.clock.monotonicMs()
    let most: QueuedAttestation | null = null
    let mostUsed = this.#usedBy(networks, nowMs)
    for (const waiting of this.#waiting) {
      const used = this.#usedBy(waiting.networks, nowMs)
      // Among equals, chooses the newest.
      if (used < mostUsed || (most === null && used === mostUsed)) continue
      most = waiting
      mostUsed = used
    }
    if (most === null) return false
    this.#remove(most)
    most.refuse()
    return true
  }

  async #serve(): Promise<void> {
    const { clock, gapMs } = this.#deps
    this.#isBusy = true
    while (this.#waiting.length > 0) {
      const waitMs = this.#nextAtMs - clock.monotonicMs()
      if (waitMs > 0) {
        await pause(clock, waitMs, never)
        continue
      }
      const next = this.#next()
      if (next === null) break
      this.#nextAtMs = clock.monotonicMs() + gapMs
      await next.begin()
    }
    this.#isBusy = false
  }

  #next(): QueuedAttestation | null {
    const nowMs = this.#deps.clock.monotonicMs()
    let least: QueuedAttestation | null = null
    let leastUsed = Number.POSITIVE_INFINITY
    for (const waiting of this.#waiting) {
      const used = this.#usedBy(waiting.networks, nowMs)
      if (used >= leastUsed) continue
      least = waiting
      leastUsed = used
    }
    if (least !== null) this.#remove(least)
    return least
  }

  #remove(waiting: QueuedAttestation): boolean {
    const at = this.#waiting.indexOf(waiting)
    if (at >= 0) this.#waiting.splice(at, 1)
    return at >= 0
  }

  /** Returns the highest use among the caller's networks. */
  #usedBy(networks: readonly Network[], nowMs: number): number {
    return Math.max(...networks.map(network => this.#usedIn(keyOf(network), nowMs) / WEIGHTS[network.width]))
  }

  #usedIn(key: string, nowMs: number): number {
    const used = this.#used.get(key)
    return used === undefined ? 0 : used.amount * 2 ** ((used.atMs - nowMs) / halfLifeMs)
  }

  #charge(networks: readonly Network[]): void {
    const nowMs = this.#deps.clock.monotonicMs()
    for (const network of networks) {
      const key = keyOf(network)
      this.#used.set(key, { amount: this.#usedIn(key, nowMs) + 1, atMs: nowMs })
    }
    if (this.#used.size > 3 * (this.#deps.networksMax ?? networksMaxDefault)) this.#forgetHalf(nowMs)
  }

  /** Drops the half with the least use, which harms no other network. Wide networks have the most use. */
  #forgetHalf(nowMs: number): void {
    const all = [...this.#used.keys()].map(key => ({ key, amount: this.#usedIn(key, nowMs) }))
    all.sort((a, b) => a.amount - b.amount)
    for (const { key } of all.slice(0, Math.ceil(all.length / 2))) this.#used.delete(key)
  }
}

const never = new AbortController().signal

function keyOf({ name, width }: Network): string {
  return `${width} ${name}`
}
