// This host's lease in the fleet. While it has one it takes new instances. Effects: statements to PostgreSQL, a timer.
//
// The host measures the lease from before its request, with its monotonic clock, so it stops no later than others
// expect.

import { type Clock, pause } from '../../base/clock.ts'
import { newUuid } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { HostReport } from '../../contract/admin/fleet.ts'
import { reasonOf, sqlStateOf } from '../failures.ts'
import type { Postgres } from '../postgres.ts'
import type { GiveUp } from './hosts.query.ts'
import { giveUpSilent, mayUseDirectory, type Renewed, type Rival, renewLease } from './lease.query.ts'

export const renewEveryMs = 2_000

export type LeaseDeps = {
  readonly postgres: Pick<Postgres, 'query' | 'transact'>
  readonly hostId: string
  readonly platform: string
  /** Silence of another host after which its instances are given up. */
  readonly lostAfterMs: number
  readonly renewEveryMs?: number
  /** See Renewal. Default: a random number of this process. */
  readonly process?: string
  /** Checks that this host can work on the directory; repeated until it succeeds. Rejects with the problem. */
  readonly check?: () => Promise<void>
  /** Returns this host's report. Throwing counts as a failed renewal. */
  readonly report: () => { readonly places: number; readonly report: HostReport }
  readonly giveUp: GiveUp
  readonly clock: Clock
  readonly log: Logger
  /** Records an event in this host's journal: it was lost, or gave up another host. */
  readonly onEvent: (kind: FleetEvent, detail: Record<string, unknown>) => void
  /**
   * Called after each answer of the directory. False if it has removed this host, or another process is the host.
   * `reported`: see Renewed.
   */
  readonly onMembership?: (isMember: boolean, reported: number | null) => void
}

export type FleetEvent = 'fleet.lost' | 'fleet.gave-up'

export type LeaseView = {
  readonly hasLease: boolean
  readonly isDraining: boolean
  /** Null before the first renewal. */
  readonly epoch: number | null
  /** Why the last renewal failed; null if it succeeded. */
  readonly problem: string | null
}

const ownProcess = newUuid()

/** Shown in the log, and in status if the database responds. */
export const notMember =
  'this host is no member of the fleet, or signs in to the database as another role: `strongroom fleet join` takes it back'

function rivalText({ rival, ownAddress }: Rival): string {
  return `another process with the identity of this host has the lease: it signs in from ${rival}, this one from ${ownAddress}`
}

/** Renewals that a killed process may have under way. One more shows that the process runs. */
const renewalsUnderWay = 1

export class Lease {
  readonly #deps: LeaseDeps
  #untilMs = Number.NEGATIVE_INFINITY
  #isDraining = false
  #epoch: number | null = null
  #problem: string | null = 'no renewal has succeeded yet'
  #hadLease = false
  #isChecked = false
  /** The other process's last renewal as this one saw it, and how many it has made meanwhile. */
  #rival = { renewed: '', renewals: -1 }
  #giving: Promise<void> | null = null

  constructor(deps: LeaseDeps) {
    this.#deps = deps
  }

  view(): LeaseView {
    const hasLease = this.isHeld()
    const problem = hasLease ? this.#problem : (this.#problem ?? 'the database has not answered the last renewal yet')
    return { hasLease, isDraining: this.#isDraining, epoch: this.#epoch, problem }
  }

  /** Reports whether this host holds its lease. Without it the host starts nothing new; its VMs continue. */
  isHeld(): boolean {
    return this.#deps.clock.monotonicMs() < this.#untilMs
  }

  /** Renews until the signal is aborted. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, renewEveryMs: everyMs = renewEveryMs } = this.#deps
    while (!signal.aborted) {
      const beganMs = clock.monotonicMs()
      await this.renew()
      await pause(clock, Math.max(0, everyMs - (clock.monotonicMs() - beganMs)), signal)
    }
    await this.#giving
  }

  /** Renews once. Never rejects. */
  async renew(): Promise<void> {
    const { postgres, hostId, platform, lostAfterMs, process = ownProcess, clock } = this.#deps
    // A copy that waited for the host's next pause would end the host's instances then.
    if (this.#isCopy()) return
    const beganMs = clock.monotonicMs()
    try {
      if (!this.#isChecked) await this.#deps.check?.()
      this.#isChecked = true
      const renewal = { hostId, platform, lostAfterMs, process, ...this.#deps.report() }
      this.#apply(await renewLease(postgres, renewal), beganMs)
    } catch (error) {
      if (await this.#isShutOut(error)) this.#leave()
      else this.#problem = reasonOf(error)
    }
    this.#tell()
  }

  /** Reports whether a failure is a right that was taken with the membership. Never rejects. */
  async #isShutOut(error: unknown): Promise<boolean> {
    // Without the right to use its schema, the server reports that the function does not exist.
    if (sqlStateOf(error) === null) return false
    return await mayUseDirectory(this.#deps.postgres).then(
      may => !may,
      () => false,
    )
  }

  #leave(problem = notMember): void {
    this.#untilMs = Number.NEGATIVE_INFINITY
    this.#problem = problem
    this.#deps.onMembership?.(false, null)
  }

  #isCopy(): boolean {
    return this.#rival.renewals > renewalsUnderWay
  }

  #refuse(rival: Rival): void {
    const { renewed, renewals } = this.#rival
    if (rival.rivalRenewed !== renewed) this.#rival = { renewed: rival.rivalRenewed, renewals: renewals + 1 }
    const remedy = this.#isCopy()
      ? 'Both run, so this one does not try again: stop the copy; if this is the host, restart it then'
      : 'Stop the copy; if the other process has ended, this one has the lease within ten seconds'
    this.#leave(`${rivalText(rival)}. ${remedy}`)
  }

  #apply(renewed: Renewed, beganMs: number): void {
    const { log, onEvent, onMembership } = this.#deps
    if (!renewed.isMember) {
      this.#leave()
      return
    }
    if (renewed.rival !== null) {
      this.#refuse(renewed)
      return
    }
    this.#rival = { renewed: '', renewals: -1 }
    onMembership?.(true, renewed.reported)
    this.#untilMs = beganMs + renewed.leaseMs
    this.#isDraining = renewed.isDraining
    this.#epoch = renewed.epoch
    this.#problem = null
    if (renewed.wasLost) {
      log.warn('this host was silent for so long that the fleet gave its instances up; they are ended')
      onEvent('fleet.lost', {})
    }
    // Runs concurrently, because renewals must not wait for it.
    if (renewed.silent.length > 0) this.#giving ??= this.#giveUpAll(renewed.silent)
  }

  /** Gives up all these hosts. Never rejects. */
  async #giveUpAll(hostIds: readonly string[]): Promise<void> {
    for (const hostId of hostIds) await this.#giveUp(hostId)
    this.#giving = null
  }

  async #giveUp(hostId: string): Promise<void> {
    const { postgres, lostAfterMs, giveUp, log, onEvent } = this.#deps
    try {
      const instances = await giveUpSilent(postgres, { hostId, lostAfterMs }, giveUp)
      if (instances === null) return
      log.warn('a host of the fleet was silent for too long: its instances have failed', { host: hostId, instances })
      onEvent('fleet.gave-up', { host: hostId, instances })
    } catch (error) {
      log.warn('a silent host could not be given up; the next renewal tries again', { problem: reasonOf(error) })
    }
  }

  #tell(): void {
    const hasLease = this.isHeld()
    if (hasLease === this.#hadLease) return
    this.#hadLease = hasLease
    const { log } = this.#deps
    if (hasLease) log.info('this host has its lease in the fleet', { epoch: this.#epoch })
    else log.warn('this host has no lease in the fleet: it starts nothing new', { problem: this.#problem })
  }
}
