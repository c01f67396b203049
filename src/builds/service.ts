// Service C's decisions: submit, show, cancel, reserve a VM. Effects: the directory, files, callbacks after a commit.
// The reconciler carries out what is accepted.

import { assert, present } from '../base/assert.ts'
import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { newUuid, type RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { Places } from '../base/work/places.ts'
import { LimitedFault } from '../http/limited.ts'
import type { DirectoryDb, DirectoryStore } from '../store/db.ts'
import {
  buildById,
  buildByVm,
  buildVmById,
  countBuilds,
  countReserved,
  insertBuild,
  isNonceUsed,
  LIVING_STATES,
  moveBuild,
  nthNewestBuild,
  removeBuildVm,
  VM_STATES,
} from '../store/directory/build.query.ts'
import type { Build, BuildVm } from '../store/directory/build.table.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import { nextState } from './build.machine.ts'
import type { EventLogs } from './events/events.ts'
import type { BuildFiles } from './files.ts'
import type { BuildWanted } from './request.codec.ts'
import { ownersOf, PARTS, queueShare, reservedShare } from './shares.plan.ts'
import { Strangers } from './strangers.ts'
import { listInTurn } from './turns.query.ts'
import type { BuildsSettings, Caller } from './types.ts'

export type BuildsServiceDeps = {
  readonly directory: Pick<DirectoryStore, 'db' | 'transact'>
  readonly hostId: string
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly random: RandomBytes
  readonly log: Logger
  readonly settings: BuildsSettings
  readonly files: BuildFiles
  readonly events: EventLogs
  /** Removes old results until this many more bytes fit. False: they do not. */
  readonly makeRoom: (bytes: number) => boolean
  /**
   * Makes or takes a VM for a reservation and writes its row in this transaction; `start` follows the commit. Null:
   * no room.
   */
  readonly reserveVm: (
    tx: DirectoryDb,
    of: { organizationId: string | null; expiresAtMs: number },
  ) => { readonly vmId: string; readonly start: () => void } | null
  /** After the commit. */
  readonly onAccepted: (build: Build) => void
  readonly onCancelled: (build: Build) => void
}

export type Place = {
  /** A reserved VM; null: any. */
  readonly vmId: string | null
}

const dayMs = 24 * 60 * 60 * 1000
/** How soon it is worth asking again, where nobody knows when there is room. */
const busyRetryMs = 15_000
/** Files are bounded by the configuration; this much is left free for everything else on the file system. */
const freeBytesMin = 512 * 1024 * 1024

export class BuildsService {
  readonly #deps: BuildsServiceDeps
  readonly #uploads: Places
  readonly #strangers: Strangers

  constructor(deps: BuildsServiceDeps) {
    this.#deps = deps
    this.#uploads = new Places(deps.settings.uploadsMax)
    const living: readonly string[] = LIVING_STATES
    this.#strangers = new Strangers({
      clock: deps.clock,
      perDayMax: deps.settings.perDayMax,
      livingMax: deps.settings.perOrganizationMax,
      isLiving: id => living.includes(buildById(deps.directory.db, id)?.state ?? ''),
    })
  }

  /** Refuses what could not be accepted whatever its body says. Faults: rate_limited, not_found, conflict. */
  admit(caller: Caller, { vmId }: Place, address: () => string): void {
    const { directory } = this.#deps
    if (caller.organizationId === null) this.#strangers.check(address())
    if (vmId !== null) this.#reservedVm(directory.db, caller, vmId)
    this.#checkLimits(directory.db, caller, vmId !== null)
  }

  /** Runs `work` as one of the uploads under way. Fault rate_limited: too many, of this caller or in total. */
  async whileUploading<T>(caller: Caller, address: () => string, work: () => Promise<T>): Promise<T> {
    const leave = this.#uploads.take(ownersOf(caller, address(), PARTS.uploads))
    if (leave === 'own') {
      throw new LimitedFault(
        'As many sources of yours as may be are on their way; wait until one is here.',
        busyRetryMs,
      )
    }
    if (leave === 'all') {
      throw new LimitedFault('As many sources as this service takes at a time are on their way.', busyRetryMs)
    }
    try {
      return await work()
    } finally {
      leave()
    }
  }

  /**
   * Accepts a build and takes over its source. Faults: conflict (nonce, VM), not_found (VM), rate_limited, internal.
   */
  async submit(caller: Caller, wanted: BuildWanted, { vmId }: Place, address: () => string): Promise<Build> {
    const { directory, files, random, clock } = this.#deps
    const { source } = wanted
    const upload = source.kind === 'archive' ? source.upload : null
    this.#checkNonce(directory.db, caller, wanted)
    this.#checkRoom(upload?.sizeBytes ?? 0)
    const id = newUuid(random)
    let build: Build
    try {
      await files.adopt(id, upload)
      build = directory.transact(tx => {
        if (caller.organizationId === null) this.#strangers.check(address())
        this.#checkLimits(tx, caller, vmId !== null)
        this.#checkNonce(tx, caller, wanted)
        if (vmId !== null) {
          this.#reservedVm(tx, caller, vmId)
          assert(removeBuildVm(tx, vmId), 'an immediate transaction sees no other writer')
        }
        const inserted = insertBuild(tx, { ...this.#rowOf(caller, wanted), id, vmId, nowMs: clock.nowMs() })
        assert(inserted, 'the nonce was looked for')
        return present(buildById(tx, id), 'a build that was inserted is there')
      })
    } catch (error) {
      files.remove(id)
      throw error
    }
    if (caller.organizationId === null) this.#strangers.note(id, address())
    this.#after(build, () => {
      if (build.state === 'queued') this.#deps.events.of(id).append([{ data: this.#queuedEvent(id), seq: null }])
      this.#deps.onAccepted(build)
    })
    return build
  }

  /** A build of the caller's. Fault not_found: there is none, or it is another organization's. */
  find(caller: Caller, id: string, { vmId }: Place): Build {
    const build = uuidPattern.test(id) ? buildById(this.#deps.directory.db, id) : null
    if (build === null || build.organizationId !== caller.organizationId || (vmId !== null && build.vmId !== vmId)) {
      throw new Fault('not_found', 'There is no build of this id.')
    }
    return build
  }

  /** No effect on one that has ended. Fault not_found. */
  cancel(caller: Caller, id: string, place: Place): Build {
    return this.#cancel(this.find(caller, id, place))
  }

  /** As the operator. Null: there is none. */
  cancelById(id: string): Build | null {
    const build = buildById(this.#deps.directory.db, id)
    return build === null ? null : this.#cancel(build)
  }

  /** A VM of the caller's own, for one build. Faults: rate_limited. */
  reserve(caller: Caller): { readonly vmId: string; readonly expiresAtMs: number } {
    const { directory, clock, settings, reserveVm } = this.#deps
    const { organizationId } = caller
    const expiresAtMs = clock.nowMs() + settings.reservedMs
    const vm = directory.transact(tx => {
      this.#checkActive(tx, caller)
      this.#checkOrganization(tx, caller)
      this.#checkReserved(tx, caller)
      if (this.#withVm(tx) >= settings.concurrentMax) {
        throw new LimitedFault(`All ${settings.concurrentMax} build VMs are in use.`, busyRetryMs)
      }
      return reserveVm(tx, { organizationId, expiresAtMs })
    })
    if (vm === null) throw new LimitedFault('This host has no room for another build VM now.', busyRetryMs)
    try {
      vm.start()
    } catch (error) {
      // It is reserved; whoever looks after build VMs finds that it is not there, and says so.
      this.#deps.log.error('a reserved build VM was not started', { vm: vm.vmId, error })
    }
    return { vmId: vm.vmId, expiresAtMs }
  }

  /** Whether a VM is there, reserved or with its build. */
  hasVm(vmId: string): boolean {
    const { db } = this.#deps.directory
    return uuidPattern.test(vmId) && (buildVmById(db, vmId)?.kind === 'reserved' || buildByVm(db, vmId) !== null)
  }

  #rowOf({ organizationId }: Caller, wanted: BuildWanted) {
    const { source, ...request } = wanted
    const common = { hostId: this.#deps.hostId, organizationId, ...request }
    const none = { sourceName: null, sourceBytes: null, sourceSha256: null, repoUrl: null, repoRef: null }
    if (source.kind === 'git') {
      return { ...common, ...none, sourceKind: 'git', repoUrl: source.url, repoRef: source.ref, diskBytes: 0 } as const
    }
    const { sizeBytes, sha256 } = source.upload
    const archive = { sourceName: source.name, sourceBytes: sizeBytes, sourceSha256: sha256, diskBytes: sizeBytes }
    return { ...common, ...none, ...archive, sourceKind: 'archive' } as const
  }

  #cancel(build: Build): Build {
    const { directory, clock, onCancelled } = this.#deps
    const to = nextState(build.state, 'cancelled')
    if (to === null) return build
    const isMoved = directory.transact(tx =>
      moveBuild(tx, {
        id: build.id,
        from: build.state,
        to,
        finishedAtMs: clock.nowMs(),
        errorType: 'cancelled',
        error: 'The build was cancelled.',
      }),
    )
    const now = present(buildById(directory.db, build.id), 'a build is there as long as its record')
    // Somebody moved it first: once more, from where it is now. Its states have an end.
    if (!isMoved) return this.#cancel(now)
    this.#after(now, () => onCancelled(now))
    return now
  }

  /** Faults: not_found, conflict (it has taken its build). */
  #reservedVm(db: DirectoryDb, { organizationId }: Caller, vmId: string): BuildVm {
    const vm = uuidPattern.test(vmId) ? buildVmById(db, vmId) : null
    if (vm !== null && vm.kind === 'reserved' && vm.organizationId === organizationId) return vm
    const build = uuidPattern.test(vmId) ? buildByVm(db, vmId) : null
    if (build !== null && build.organizationId === organizationId) {
      throw new Fault('conflict', 'This VM has accepted a build already; each takes one.')
    }
    throw new Fault('not_found', 'There is no such VM; a reserved one is kept for a while only.')
  }

  #checkNonce(db: DirectoryDb, { organizationId }: Caller, { nonce }: BuildWanted): void {
    if (!isNonceUsed(db, { organizationId, nonce })) return
    throw new Fault('conflict', 'This nonce was used for another build; draw a new one.', { param: 'nonce' })
  }

  #checkLimits(db: DirectoryDb, caller: Caller, hasVm: boolean): void {
    const { hostId, settings, clock } = this.#deps
    const { organizationId } = caller
    this.#checkActive(db, caller)
    if (!hasVm) {
      this.#checkOrganization(db, caller)
      const free = this.#freeVms(db)
      if (countBuilds(db, { hostId, states: ['queued'] }) >= settings.queueMax + free) {
        throw new LimitedFault(`As many builds as may wait (${settings.queueMax}) are waiting.`, busyRetryMs)
      }
      const share = queueShare(settings.queueMax)
      if (countBuilds(db, { hostId, organizationId, states: ['queued'] }) >= share + free) {
        throw new LimitedFault(`As many builds of yours as may wait (${share}) are waiting.`, busyRetryMs)
      }
    }
    const sinceMs = clock.nowMs() - dayMs
    const first = nthNewestBuild(db, { organizationId, nth: settings.perDayMax, sinceMs })
    if (first !== null) {
      const message = `${settings.perDayMax} builds were begun within 24 hours, which is the limit.`
      throw new LimitedFault(message, Math.min(dayMs, first + dayMs - clock.nowMs()))
    }
  }

  /** A source may take minutes to come; its organization may be suspended or deleted by then. Fault forbidden. */
  #checkActive(db: DirectoryDb, { organizationId }: Caller): void {
    if (organizationId === null || organizationById(db, organizationId)?.status === 'active') return
    throw new Fault('forbidden', 'The organization is suspended.')
  }

  #checkOrganization(db: DirectoryDb, { organizationId }: Caller): void {
    const { hostId, settings } = this.#deps
    const living = countBuilds(db, { organizationId, states: LIVING_STATES })
    if (living + countReserved(db, { hostId, organizationId }) >= settings.perOrganizationMax) {
      const message = `${settings.perOrganizationMax} builds wait or run, which is the limit; wait for one, or cancel one.`
      throw new LimitedFault(message, busyRetryMs)
    }
  }

  /**
   * A reservation keeps its VM from others as long as it is renewed. So builds go first, and no organization reserves
   * the last VM.
   */
  #checkReserved(db: DirectoryDb, { organizationId }: Caller): void {
    const { hostId, settings } = this.#deps
    if (countBuilds(db, { hostId, states: ['queued'] }) > 0) {
      throw new LimitedFault('Builds wait for a VM, so that none is reserved; send yours to POST /build.', busyRetryMs)
    }
    const share = reservedShare(settings.concurrentMax)
    if (countReserved(db, { hostId, organizationId }) >= share) {
      throw new LimitedFault(`${share} VMs are reserved for you, which is the limit; send a build to one.`, busyRetryMs)
    }
  }

  /** While a VM is free, a build need not wait in the queue. */
  #freeVms(db: DirectoryDb): number {
    return Math.max(0, this.#deps.settings.concurrentMax - this.#withVm(db))
  }

  #withVm(db: DirectoryDb): number {
    const { hostId } = this.#deps
    return countBuilds(db, { hostId, states: VM_STATES }) + countReserved(db, { hostId })
  }

  #checkRoom(bytes: number): void {
    const { makeRoom, files } = this.#deps
    if (makeRoom(bytes) && files.freeBytes() >= bytes + freeBytesMin) return
    throw new LimitedFault('There is no room for another source on this host now.', busyRetryMs)
  }

  #queuedEvent(id: string) {
    const { directory, hostId } = this.#deps
    const position = listInTurn(directory.db, hostId).findIndex(build => build.id === id)
    return { type: 'queued', position: Math.max(0, position) } as const
  }

  #after(build: Build, callback: () => void): void {
    try {
      callback()
    } catch (error) {
      this.#deps.log.error('a build callback failed', { build: build.id, state: build.state, error })
    }
  }
}

const uuidPattern = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
