// Service C's decisions: submit, show, cancel, reserve a VM. Effects: the directory, files, callbacks after a commit.
// The reconciler executes accepted builds.

import { assert, present } from '../base/assert.ts'
import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { newUuid, type RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { dayMs } from '../base/time.ts'
import { FairSlots } from '../base/work/fair-slots.ts'
import { LimitedFault } from '../http/limited.ts'
import type { DirectoryDb, DirectoryStore, DirectoryTx } from '../store/db.ts'
import {
  buildById,
  buildByVm,
  buildVmById,
  countBuilds,
  countReservations,
  countReserved,
  insertBuild,
  insertReservation,
  isNonceUsed,
  LIVING_STATES,
  moveBuild,
  nthNewestBuild,
  removeBuildVm,
  reservationOf,
  VM_STATES,
} from '../store/directory/build.query.ts'
import type { Build, BuildVm } from '../store/directory/build.table.ts'
import { organizationById, organizationMemoryMib } from '../store/directory/organization.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import { AnonymousCallers, busyRetryMs } from './anonymous-callers.ts'
import { nextState } from './build.machine.ts'
import type { EventLogs } from './events/events.ts'
import type { BuildFiles } from './files.ts'
import { HostClosedFault, HostFullFault, mayTake } from './fleet.ts'
import type { BuildWanted } from './request.codec.ts'
import { ownersOf, PARTS, queueShare, reservedShare } from './shares.plan.ts'
import { listInTurn } from './turns.query.ts'
import type { BuildsSettings, Caller } from './types.ts'

export type BuildsServiceDeps = {
  readonly directory: Pick<DirectoryStore, 'db' | 'transact' | 'change' | 'read'>
  readonly hostId: string
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly random: RandomBytes
  readonly log: Logger
  readonly settings: BuildsSettings
  /** Called for each new build and reservation. Throws UnavailableFault during maintenance. */
  readonly admitNew: () => void
  readonly files: BuildFiles
  readonly events: EventLogs
  /** Removes old results until this many more bytes fit. Returns false if they do not. */
  readonly makeRoom: (bytes: number) => boolean
  /**
   * Makes or takes a VM for a reservation and writes its row in this transaction; call `start` after the commit. Null
   * if there is no room.
   */
  readonly reserveVm: (
    tx: DirectoryDb,
    of: { organizationId: string | null; expiresAtMs: number },
  ) => { readonly vmId: string; readonly start: () => void } | null
  /** Keeps a reserved VM for a build that is being submitted. Returns a function that ends this. */
  readonly holdVm: (vmId: string) => () => void
  /** Called after the commit. */
  readonly onAccepted: (build: Build) => void
  /** Called for a build of this host. */
  readonly onCancelled: (build: Build) => void
}

export type BuildDispatcher = {
  /** A reserved VM; null means any. */
  readonly vmId: string | null
}

/** Free space to leave on the file system for everything else. The configuration limits the files themselves. */
const freeBytesMin = 512 * 1024 * 1024

export class BuildsService {
  readonly #deps: BuildsServiceDeps
  readonly #uploads: FairSlots
  readonly #strangers: AnonymousCallers

  constructor(deps: BuildsServiceDeps) {
    this.#deps = deps
    this.#uploads = new FairSlots(deps.settings.uploadsMax)
    const living: readonly string[] = LIVING_STATES
    this.#strangers = new AnonymousCallers({
      clock: deps.clock,
      settings: deps.settings,
      isLiving: id => living.includes(buildById(deps.directory.db, id)?.state ?? ''),
    })
  }

  /** Rejects requests that would be rejected with any body. Faults: rate_limited, not_found, conflict. */
  admit(caller: Caller, { vmId }: BuildDispatcher, address: () => string): void {
    const { directory } = this.#deps
    if (caller.organizationId === null) this.#strangers.check(address())
    if (vmId !== null) this.#reservedVm(directory.db, caller, vmId)
    this.#checkLimits(directory.db, caller, vmId !== null)
  }

  /** Reports whether a build of this caller would be admitted now, with its upload. */
  hasRoom(caller: Caller, address: () => string): boolean {
    try {
      this.admit(caller, { vmId: null }, address)
      this.beginUpload(caller, address)()
      return true
    } catch (error) {
      if (error instanceof Fault) return false
      throw error
    }
  }

  /**
   * Counts an upload in progress until the returned function is called. Fault rate_limited if there are too many, of
   * this caller or in total.
   */
  beginUpload(caller: Caller, address: () => string): () => void {
    const leave = this.#uploads.take(ownersOf(caller, address(), PARTS.uploads))
    if (leave === 'own') {
      throw new HostFullFault('You have reached the limit of concurrent uploads; wait for one to finish.', busyRetryMs)
    }
    if (leave === 'all') {
      throw new HostFullFault('The service has reached its limit of concurrent uploads; retry later.', busyRetryMs)
    }
    return leave
  }

  /**
   * Accepts a build and takes over its source. Faults: conflict (nonce, VM), not_found (VM), rate_limited, internal.
   */
  async submit(caller: Caller, wanted: BuildWanted, { vmId }: BuildDispatcher, address: () => string): Promise<Build> {
    const { directory, files, random } = this.#deps
    const { source } = wanted
    const upload = source.kind === 'archive' ? source.upload : null
    this.#checkNonce(directory.db, caller, wanted)
    this.#checkRoom(upload?.sizeBytes ?? 0)
    const id = newUuid(random)
    const release = vmId === null ? () => {} : this.#deps.holdVm(vmId)
    let build: Build
    try {
      await files.adopt(id, upload)
      build = await directory.change(tx => {
        if (caller.organizationId === null) this.#strangers.check(address())
        this.#checkLimits(tx, caller, vmId !== null)
        this.#checkNonce(tx, caller, wanted)
        if (vmId !== null) {
          this.#reservedVm(tx, caller, vmId)
          assert(removeBuildVm(tx, vmId), 'an immediate transaction sees no other writer')
        }
        const inserted = insertBuild(tx, { ...this.#rowOf(caller, wanted), id, vmId, nowMs: tx.nowMs })
        assert(inserted, 'the nonce was looked for')
        return present(buildById(tx, id), 'a build that was inserted is there')
      })
      // In a fleet, only the directory has recorded so far that the VM has its build.
      if (vmId !== null) directory.transact(tx => removeBuildVm(tx, vmId))
    } catch (error) {
      // If the outcome is unknown, its files stay: retention removes files without a record later.
      if (!(error instanceof Fault && error.code === 'fleet.unavailable')) files.remove(id)
      throw error
    } finally {
      release()
    }
    if (caller.organizationId === null) this.#strangers.note(id, address())
    this.#after(build, () => {
      if (this.#waitsHere(id)) this.#deps.events.open(id).append([{ data: this.#queuedEvent(id), seq: null }])
      this.#deps.onAccepted(build)
    })
    return build
  }

  /** Returns a build of the caller. Fault not_found if it does not exist, or belongs to another organization. */
  async find(caller: Caller, id: string, dispatcher: BuildDispatcher): Promise<Build> {
    return await this.#deps.directory.read(null, db => known(ownBuild(db, caller, id, dispatcher)))
  }

  /** Returns a build for a client that was authorized before. Null if its record was removed. */
  async look(id: string): Promise<Build | null> {
    return await this.#deps.directory.read(null, db => buildById(db, id))
  }

  /** Cancels a build. No effect if it has ended. Faults: not_found, fleet.unavailable. */
  async cancel(caller: Caller, id: string, dispatcher: BuildDispatcher): Promise<Build> {
    const build = await this.#deps.directory.read(null, db => ownBuild(db, caller, id, dispatcher))
    if (build !== null && hasEnded(build)) return build
    // If this host's copy lacks its row, the change finds it.
    return await this.#cancel(tx => known(ownBuild(tx, caller, id, dispatcher)))
  }

  /** Cancels as the operator. Null if the build does not exist. Fault fleet.unavailable. */
  async cancelById(id: string): Promise<Build | null> {
    const build = buildById(this.#deps.directory.db, id)
    if (build === null || hasEnded(build)) return build
    return await this.#cancel(tx => present(buildById(tx, id), 'a build is there as long as its record'))
  }

  /** Reserves a VM of this host for one build of the caller. Faults: rate_limited, forbidden, fleet.unavailable. */
  async reserve(caller: Caller): Promise<{ readonly vmId: string; readonly expiresAtMs: number }> {
    const { directory, hostId, clock, settings, reserveVm } = this.#deps
    const { organizationId } = caller
    const expiresAtMs = clock.nowMs() + settings.reservedMs
    const vm = directory.transact(tx => {
      this.#checkActive(tx, caller)
      this.#deps.admitNew()
      this.#checkOrganization(tx, caller)
      this.#checkReserved(tx, caller)
      if (this.#withVm(tx) >= settings.concurrentMax) {
        throw new HostFullFault(`All ${settings.concurrentMax} build VMs are in use.`, busyRetryMs)
      }
      return reserveVm(tx, { organizationId, expiresAtMs })
    })
    if (vm === null)
      throw new HostFullFault('This host has no room for another build VM now; retry later.', busyRetryMs)
    // Otherwise a check of the VMs would dismiss it as one that was never created.
    const release = this.#deps.holdVm(vm.vmId)
    try {
      // Checks again with the current state of all hosts.
      await directory.change(tx => {
        this.#checkTakes(tx)
        this.#checkActive(tx, caller)
        this.#checkOrganization(tx, caller)
        insertReservation(tx, { vmId: vm.vmId, hostId, organizationId, expiresAtMs })
      })
      this.#start(vm)
    } catch (error) {
      // Without its row the VM is dismissed, or was never created.
      directory.transact(tx => removeBuildVm(tx, vm.vmId))
      throw error
    } finally {
      release()
    }
    return { vmId: vm.vmId, expiresAtMs }
  }

  #start({ vmId, start }: { readonly vmId: string; readonly start: () => void }): void {
    try {
      start()
    } catch (error) {
      // The row shows it as reserved. The next check does not find the VM, and ends the row for that reason.
      this.#deps.log.error('a reserved build VM was not started', { vm: vmId, error })
    }
  }

  /** Returns the host of a VM that is reserved or has its build; null if there is no such VM. */
  async hostOfVm(vmId: string): Promise<string | null> {
    const { directory } = this.#deps
    return hostOfVm(directory.db, vmId) ?? (await directory.read(null, db => hostOfVm(db, vmId)))
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

  async #cancel(find: (tx: DirectoryTx) => Build): Promise<Build> {
    const { directory, hostId, onCancelled } = this.#deps
    const { isMoved, now } = await directory.change(tx => {
      const row = find(tx)
      const { id } = row
      const to = nextState(row.state, 'cancelled')
      if (to === null) return { isMoved: false, now: row }
      const end = { finishedAtMs: tx.nowMs, errorType: 'cancelled', error: 'The build was cancelled.' } as const
      assert(moveBuild(tx, { id, from: row.state, to, ...end }), 'an immediate transaction sees no other writer')
      return { isMoved: true, now: present(buildById(tx, id), 'it was there') }
    })
    // Other hosts learn of it from the change.
    if (isMoved && now.hostId === hostId) this.#after(now, () => onCancelled(now))
    return now
  }

  /** Returns a reserved VM. Faults: not_found, conflict (it has its build already). */
  #reservedVm(db: DirectoryDb, { organizationId }: Caller, vmId: string): BuildVm {
    const build = uuidPattern.test(vmId) ? buildByVm(db, vmId) : null
    const vm = uuidPattern.test(vmId) && build === null ? buildVmById(db, vmId) : null
    if (vm !== null && vm.kind === 'reserved' && vm.organizationId === organizationId) return vm
    if (build !== null && build.organizationId === organizationId) {
      throw new Fault('conflict', 'This VM has already accepted a build; each VM takes one.')
    }
    throw new Fault('not_found', 'VM not found; reservations expire.')
  }

  #checkNonce(db: DirectoryDb, { organizationId }: Caller, { nonce }: BuildWanted): void {
    if (!isNonceUsed(db, { organizationId, nonce })) return
    throw new Fault('conflict', 'This nonce was used for another build; generate a new one.', { param: 'nonce' })
  }

  #checkLimits(db: DirectoryDb, caller: Caller, hasVm: boolean): void {
    const { hostId, settings, clock } = this.#deps
    const { organizationId } = caller
    this.#checkActive(db, caller)
    this.#deps.admitNew()
    if (!hasVm) {
      this.#checkOrganization(db, caller)
      const free = this.#freeVms(db)
      if (countBuilds(db, { hostId, states: ['queued'] }) >= settings.queueMax + free) {
        throw new HostFullFault(`The queue is full: ${settings.queueMax} builds are waiting; retry later.`, busyRetryMs)
      }
      const share = queueShare(settings.queueMax)
      if (countBuilds(db, { hostId, organizationId, states: ['queued'] }) >= share + free) {
        throw new HostFullFault(
          `You have reached the limit of ${share} waiting builds; wait for one to start.`,
          busyRetryMs,
        )
      }
    }
    const sinceMs = clock.nowMs() - dayMs
    const mostPerDay = ownerOf(db, caller)?.quotas?.builds_per_day ?? settings.perDayMax
    const first = nthNewestBuild(db, { organizationId, nth: mostPerDay, sinceMs })
    if (first !== null) {
      const message = `You have reached the limit of ${mostPerDay} builds within 24 hours.`
      throw new LimitedFault(message, Math.min(dayMs, first + dayMs - clock.nowMs()))
    }
  }

  /**
   * Throws Fault forbidden if the organization is inactive: a source may take minutes to arrive, and the organization
   * may be suspended or deleted in the meantime.
   */
  #checkActive(db: DirectoryDb, { organizationId }: Caller): void {
    if (organizationId === null || organizationById(db, organizationId)?.status === 'active') return
    throw new Fault('forbidden', 'The organization is suspended.')
  }

  #checkOrganization(db: DirectoryDb, caller: Caller): void {
    const [{ settings }, { organizationId }] = [this.#deps, caller]
    const owner = ownerOf(db, caller)
    const most = owner?.quotas?.builds ?? settings.perOrganizationMax
    if (most === 0) throw new Fault('forbidden', 'The operator allows this organization no builds; ask the operator.')
    const living = countBuilds(db, { organizationId, states: LIVING_STATES })
    if (living + countReservations(db, { organizationId }) >= most) {
      const message = `You have reached the limit of ${most} unfinished builds; wait for one to finish, or cancel one.`
      throw new LimitedFault(message, busyRetryMs)
    }
    if (owner !== null) checkMemory(db, owner, settings)
  }

  /**
   * A reservation blocks its VM for others while it is renewed. Builds therefore take precedence, and no organization
   * can reserve the last VM.
   */
  #checkReserved(db: DirectoryDb, { organizationId }: Caller): void {
    const { hostId, settings } = this.#deps
    if (countBuilds(db, { states: ['queued'] }) > 0) {
      throw new LimitedFault(
        'VMs cannot be reserved while builds are waiting; send your build to POST /build.',
        busyRetryMs,
      )
    }
    const share = reservedShare(settings.concurrentMax)
    if (countReserved(db, { hostId, organizationId }) >= share) {
      throw new HostFullFault(`You have reached the limit of ${share} reserved VMs; send a build to one.`, busyRetryMs)
    }
  }

  /** Throws Fault fleet.unavailable if this host accepts no new builds. */
  #checkTakes({ hosts }: DirectoryTx): void {
    if (mayTake(hosts, this.#deps.hostId)) return
    const message = 'This host takes no new builds at present; ask another one, or again later.'
    throw new HostClosedFault(message, busyRetryMs, { code: 'fleet.unavailable' })
  }

  /** Returns the number of free VMs, for which a build need not be queued. */
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
    throw new LimitedFault('This host has no disk space for another source now; retry later.', busyRetryMs)
  }

  /**
   * Reports whether this host still writes the build's events: after another host has claimed it, only that host does.
   */
  #waitsHere(id: string): boolean {
    const { directory, hostId } = this.#deps
    const now = buildById(directory.db, id)
    return now !== null && now.state === 'queued' && now.hostId === hostId
  }

  #queuedEvent(id: string) {
    const { directory } = this.#deps
    const position = listInTurn(directory.db).findIndex(build => build.id === id)
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

/** Null for a caller without an organization. */
function ownerOf(db: DirectoryDb, { organizationId }: Caller): Organization | null {
  return organizationId === null ? null : organizationById(db, organizationId)
}

/** Limits the memory of all VMs. Faults: rate_limited, forbidden (a build never fits). */
function checkMemory(db: DirectoryDb, owner: Organization, settings: BuildsSettings): void {
  const mostMib = owner.quotas?.memory_mib ?? null
  if (mostMib === null) return
  const { buildMemoryMib } = settings
  const usedMib = organizationMemoryMib(db, owner, settings)
  if (usedMib + buildMemoryMib <= mostMib) return
  const need = `A build takes ${buildMemoryMib} MiB of memory, and the organization uses ${usedMib} of its ${mostMib} MiB`
  if (buildMemoryMib > mostMib) throw new Fault('forbidden', `${need}; ask the operator.`)
  throw new LimitedFault(`${need}; wait for a build to finish, or delete an instance.`, busyRetryMs)
}

/** Returns a build of the caller; null if it does not exist, or belongs to another organization. */
function ownBuild(db: DirectoryDb, { organizationId }: Caller, id: string, { vmId }: BuildDispatcher): Build | null {
  const build = uuidPattern.test(id) ? buildById(db, id) : null
  return build?.organizationId === organizationId && (vmId === null || build.vmId === vmId) ? build : null
}

function known(build: Build | null): Build {
  if (build === null) throw new Fault('not_found', 'Build not found.')
  return build
}

function hasEnded({ state }: Build): boolean {
  return nextState(state, 'cancelled') === null
}

function hostOfVm(db: DirectoryDb, vmId: string): string | null {
  if (!uuidPattern.test(vmId)) return null
  const reserved = buildVmById(db, vmId)
  if (reserved?.kind === 'reserved') return reserved.hostId
  return reservationOf(db, vmId)?.hostId ?? buildByVm(db, vmId)?.hostId ?? null
}

const uuidPattern = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
