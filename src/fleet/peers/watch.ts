// Checks whether this host reaches the other hosts of its fleet, and publishes its own address. Effects: calls to other
// hosts, statements to PostgreSQL, a timer.

import { type Clock, iso, pause } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { reasonOf } from '../failures.ts'
import type { Postgres } from '../postgres.ts'
import type { PeerCaller } from './caller.ts'
import type { PeerList } from './peer-list.ts'
import { type PeerRow, type Publication, publishPeer } from './peers.query.ts'

export type PeerReach = {
  readonly hostId: string
  readonly name: string
  readonly isReached: boolean
  /** Why the last call did not reach it; null if it did. */
  readonly problem: string | null
  readonly askedAt: string
}

export type PeerWatchDeps = {
  readonly hostId: string
  readonly postgres: Pick<Postgres, 'query'>
  readonly list: Pick<PeerList, 'all'>
  readonly greet: PeerCaller['greet']
  readonly clock: Clock
  readonly log: Logger
}

const lookEveryMs = 5_000
/** A host that was reached more recently is not checked again. */
const reachedMs = 18_000
/** Poll interval until this host is published. */
const lookSoonMs = 1_000
/** Limit on concurrent checks. No share: the remaining hosts follow. */
const greetingsMax = 8

export class PeerWatch {
  readonly #deps: PeerWatchDeps
  readonly #reach = new Map<string, PeerReach>()
  readonly #reachedAtMs = new Map<string, number>()
  #names: ReadonlyMap<string, string> = new Map()
  #isPublished = false

  constructor(deps: PeerWatchDeps) {
    this.#deps = deps
  }

  /** Returns the other hosts that serve others, or should, by name. */
  view(): readonly PeerReach[] {
    return [...this.#reach.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
  }

  isDown(hostId: string): boolean {
    return this.#reach.get(hostId)?.isReached === false
  }

  /** Records the result of every call. */
  noteCall(hostId: string, problem: string | null): void {
    const { clock, log } = this.#deps
    const before = this.#reach.get(hostId)
    const name = this.#names.get(hostId) ?? hostId
    const isReached = problem === null
    if (isReached) this.#reachedAtMs.set(hostId, clock.monotonicMs())
    this.#reach.set(hostId, { hostId, name, isReached, problem, askedAt: iso(clock.nowMs()) })
    if (before?.isReached === isReached) return
    if (isReached) log.info('another host of the fleet is reachable', { host: name })
    else
      log.warn('another host of the fleet is unreachable; data that only it has is not served here', {
        host: name,
        problem,
      })
  }

  /** Checks all other hosts repeatedly, until the signal is aborted. Never rejects. */
  async run(own: Publication, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.look(own, signal)
      await pause(this.#deps.clock, this.#isPublished ? lookEveryMs : lookSoonMs, signal)
    }
  }

  /** Checks once. Never rejects. */
  async look(own: Publication, signal: AbortSignal): Promise<void> {
    const { hostId, list } = this.#deps
    const row = (await list.all()).find(each => each.hostId === hostId)
    await this.#publish(row, own)
    await this.greetAll(signal)
  }

  /** Checks the hosts that have not been reached recently. Never rejects. */
  async greetAll(signal: AbortSignal): Promise<void> {
    const { hostId, list } = this.#deps
    const rows = await list.all()
    this.#names = new Map(rows.map(row => [row.hostId, row.name]))
    const answering = new Set(rows.filter(({ address }) => address !== null).map(row => row.hostId))
    for (const known of [...this.#reach.keys()]) if (!answering.has(known)) this.#forget(known)
    const others = rows.filter(row => row.hostId !== hostId && row.address !== null && this.#isDue(row.hostId))
    const waiting = others.values()
    const next = async () => {
      for (const row of waiting) if (!signal.aborted) await this.#greet(row, signal)
    }
    await Promise.all(Array.from({ length: greetingsMax }, next))
  }

  #forget(hostId: string): void {
    this.#reach.delete(hostId)
    this.#reachedAtMs.delete(hostId)
  }

  #isDue(hostId: string): boolean {
    const reachedAtMs = this.#reachedAtMs.get(hostId) ?? Number.NEGATIVE_INFINITY
    return this.isDown(hostId) || this.#deps.clock.monotonicMs() - reachedAtMs > reachedMs
  }

  async #publish(row: PeerRow | undefined, own: Publication): Promise<void> {
    const { postgres, hostId, log } = this.#deps
    this.#isPublished = row?.address === own.address && row.certificate === own.certificate
    if (this.#isPublished || row === undefined) return
    try {
      this.#isPublished = await publishPeer(postgres, hostId, own)
      if (!this.#isPublished) log.debug('the fleet does not take the address of this host')
    } catch (error) {
      log.debug('the address of this host could not be published', { problem: reasonOf(error) })
    }
  }

  /** The call itself records its result. */
  async #greet({ hostId }: PeerRow, signal: AbortSignal): Promise<void> {
    try {
      await this.#deps.greet(hostId, signal)
    } catch (error) {
      const problem = error instanceof Fault ? messageOf(error.cause ?? error) : messageOf(error)
      this.#deps.log.debug('another host of the fleet does not answer', { host: hostId, problem })
    }
  }
}
