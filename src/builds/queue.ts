// Builds queued for a VM: a host of the fleet with a free slot claims the next in turn. Effects: the store.
//
// A claim is a change of the directory, so a build is claimed once. Turns apply to all hosts together.

import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { AgeTracker } from '../base/work/age-tracker.ts'
import type { BuildEvent as WireEvent } from '../contract/http/build.ts'
import type { DirectoryTx, Store } from '../store/db.ts'
import {
  buildById,
  countBuilds,
  countReserved,
  handBuild,
  type QueuedBuild,
  VM_STATES,
} from '../store/directory/build.query.ts'
import type { Build } from '../store/directory/build.table.ts'
import { nextState } from './build.machine.ts'
import { isWithinReach, mayTake } from './fleet.ts'
import { listInTurn } from './turns.query.ts'
import type { BuildsSettings } from './types.ts'
import type { BuildVms } from './vms.ts'

export type BuildQueueDeps = {
  readonly store: Pick<Store, 'directory' | 'hostId'>
  readonly clock: Clock
  readonly log: Logger
  readonly vms: Pick<BuildVms, 'room' | 'hasWarm'>
  readonly settings: Pick<BuildsSettings, 'concurrentMax'>
}

type Hooks = {
  readonly say: (buildId: string, event: WireEvent) => void
  readonly onClaimed: (buildId: string) => void
  /** Called for a build of this host that has been queued for too long. */
  readonly onOverdue: (build: Build) => Promise<void>
  readonly alarm: (ms: number) => void
  readonly isStopping: () => boolean
}

const roomRetryMs = 2_000
/** Delay before an unreachable directory is retried. */
const directoryRetryMs = 2_000
/** A build that has been queued for this long fails. */
const queuedMsMax = 24 * 60 * 60 * 1000
/** How long other hosts leave a build to the host with its source, which need not fetch it. */
const othersAfterMs = 250
/** How long a host that did not return a source is skipped. */
const avoidMs = 60_000

export class BuildQueue {
  readonly #deps: BuildQueueDeps
  readonly #hooks: Hooks
  readonly #ages: AgeTracker
  readonly #positions = new Map<string, number>()
  /** When queued builds of other hosts were first seen, by the monotonic clock. */
  #seen = new Map<string, number>()
  /**
   * Hosts that did not return a source, and builds that this host's release cannot read completely, with the monotonic
   * time until which they are skipped.
   */
  readonly #avoided = new Map<string, number>()
  #noRoomUntilMs = Number.NEGATIVE_INFINITY

  constructor(deps: BuildQueueDeps, hooks: Hooks) {
    this.#deps = deps
    this.#hooks = hooks
    this.#ages = new AgeTracker(deps.clock)
  }

  /** Forgets all except the unfinished builds of this host. */
  keepOnly(ids: readonly string[]): void {
    this.#ages.keepOnly(ids)
  }

  /** Returns a build to the queue, because there was no room for its VM. */
  requeue(id: string): void {
    // Makes its new position an event.
    this.#positions.set(id, -1)
    this.#noRoomUntilMs = this.#deps.clock.monotonicMs() + roomRetryMs
  }

  /** Skips a host that does not hand its sources over, or a build for hosts of a newer release. Others may try. */
  avoid(id: string): void {
    const nowMs = this.#deps.clock.monotonicMs()
    for (const [other, untilMs] of this.#avoided) if (untilMs <= nowMs) this.#avoided.delete(other)
    this.#avoided.set(id, nowMs + avoidMs)
  }

  #isAvoided(id: string): boolean {
    return (this.#avoided.get(id) ?? 0) > this.#deps.clock.monotonicMs()
  }

  /** Claims builds in the order of their turns, while there are VMs for them. */
  async look(): Promise<void> {
    const { clock, log } = this.#deps
    const waitMs = this.#noRoomUntilMs - clock.monotonicMs()
    if (waitMs > 0) this.#hooks.alarm(waitMs)
    try {
      while (waitMs <= 0 && !this.#hooks.isStopping()) {
        const id = this.#mayClaim() ? await this.#claimNext() : null
        if (id === null) break
        this.#hooks.onClaimed(id)
      }
    } catch (error) {
      if (!(error instanceof Fault && error.code === 'fleet.unavailable')) throw error
      log.debug('queued builds could not be started', { error })
      this.#hooks.alarm(directoryRetryMs)
    }
    const waiting = this.#waiting()
    this.#announce(waiting)
    await this.#endOverdue(waiting)
  }

  #waiting(): readonly QueuedBuild[] {
    const waiting = listInTurn(this.#deps.store.directory.db)
    const nowMs = this.#deps.clock.monotonicMs()
    this.#seen = new Map(waiting.map(({ id }) => [id, this.#seen.get(id) ?? nowMs]))
    return waiting
  }

  /** Reports whether there is a build to claim, and a slot for it. */
  #mayClaim(): boolean {
    const { store, vms, settings } = this.#deps
    const { directory, hostId } = store
    if (this.#waiting().length === 0) return false
    const { db } = directory
    const busy = countBuilds(db, { hostId, states: VM_STATES }) + countReserved(db, { hostId })
    if (busy >= settings.concurrentMax) return false
    if (vms.hasWarm(db) || vms.room().kind === 'admit') return true
    this.#hooks.alarm(roomRetryMs)
    return false
  }

  /** Claims the next build; null if there is none for this host at the moment. Fault fleet.unavailable. */
  async #claimNext(): Promise<string | null> {
    const { store } = this.#deps
    const later = this.#laterMs()
    if (later > 0) {
      this.#hooks.alarm(later)
      return null
    }
    for (;;) {
      let chosen: string | null = null
      const claim = (tx: DirectoryTx) => this.#claim(tx, id => (chosen = id))
      try {
        return await store.directory.change(claim)
      } catch (error) {
        if (chosen === null || !(error instanceof Fault && error.code === 'fleet.build_newer')) throw error
        this.#deps.log.warn('a queued build is left to hosts of a newer release', { build: chosen })
        this.avoid(chosen)
      }
    }
  }

  /** Returns how long the first build is left to another host that has its source. */
  #laterMs(): number {
    const { store, clock } = this.#deps
    const first = this.#waiting().find(({ id }) => !this.#isAvoided(id))
    if (first === undefined || first.hostId === store.hostId) return 0
    return (this.#seen.get(first.id) ?? 0) + othersAfterMs - clock.monotonicMs()
  }

  /** Claims the next build. `onChosen` is called with its id before it is claimed. */
  #claim(tx: DirectoryTx, onChosen: (id: string) => void): string | null {
    const { store } = this.#deps
    const { hostId } = store
    if (!mayTake(tx.hosts, hostId)) return null
    const reachable = (build: QueuedBuild) =>
      !this.#isAvoided(build.id) &&
      (build.hostId === hostId || (!this.#isAvoided(build.hostId) && isWithinReach(tx.hosts, build)))
    const next = listInTurn(tx).find(reachable)
    const to = nextState('queued', 'claimed')
    if (next === undefined || to === null) return null
    onChosen(next.id)
    const sourceHostId = next.hostId === hostId ? null : next.hostId
    const set = { hostId, sourceHostId, startedAtMs: tx.nowMs }
    return handBuild(tx, { id: next.id, from: 'queued', to, ...set }) ? next.id : null
  }

  /** Reports changed positions of those builds whose source this host has. */
  #announce(waiting: readonly QueuedBuild[]): void {
    const { hostId } = this.#deps.store
    const own = [...waiting.entries()].filter(([, build]) => build.hostId === hostId)
    const ids = new Set(own.map(([, { id }]) => id))
    for (const id of [...this.#positions.keys()]) if (!ids.has(id)) this.#positions.delete(id)
    for (const [position, { id }] of own) {
      const before = this.#positions.get(id)
      this.#positions.set(id, position)
      // The service reports the first position in its response.
      if (before !== undefined && before !== position) this.#hooks.say(id, { type: 'queued', position })
    }
  }

  async #endOverdue(waiting: readonly QueuedBuild[]): Promise<void> {
    const { store } = this.#deps
    for (const { id, hostId, createdAtMs } of waiting) {
      if (hostId !== store.hostId || this.#ages.ageMs(id, createdAtMs) < queuedMsMax) continue
      const build = buildById(store.directory.db, id)
      if (build !== null) await this.#hooks.onOverdue(build)
    }
  }
}
