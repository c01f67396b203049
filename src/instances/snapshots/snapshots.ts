// Snapshots of instances: taken by their VMs, kept by this host as ciphertext, handed to other VMs of the organization.
// Effects: the VM engine, the files, a listener; reads the store.
//
// Snapshots stay on the host of the instance that they are of. Only its owner can open one, and verifies where it is
// from; this host checks only what keeps its own records in order.

import { createReadStream } from 'node:fs'
import { toHex } from '../../base/bytes.ts'
import { type Clock, iso } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { type RandomBytes, randomName } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { resultOr } from '../../base/result-or.ts'
import type { FoundProblem } from '../../contract/admin/problems.ts'
import type {
  RestoreBegun,
  RestoreRequest,
  Snapshot,
  SnapshotAttempt,
  SnapshotList,
} from '../../contract/http/snapshot.ts'
import { LimitedFault } from '../../http/limited.ts'
import type { DirectoryDb, DirectoryStore } from '../../store/db.ts'
import { instanceById } from '../../store/directory/instance.query.ts'
import type { Instance } from '../../store/directory/instance.table.ts'
import { organizationById } from '../../store/directory/organization.query.ts'
import type { VmEngine } from '../../vm/engine.ts'
import { assertStillAllowed, ownInstance, type Principal } from '../service.ts'
import type { Arriving, KeptSnapshot, SnapshotFiles } from './files.ts'
import { IdleEndNotes } from './idle-end-notes.ts'
import { snapshotProblems } from './problems.plan.ts'
import { explained, isBusy, isUnchanged, RoomFault, shownReason, switchedOff, toError } from './refusals.ts'
import { replacedBy, type SnapshotCause } from './replaced.plan.ts'
import { checkRoom, type SnapshotSettings } from './room.ts'
import { ScheduleNotes } from './schedule-notes.ts'
import { digestIn, numberIn, toAttempt, toSnapshot } from './snapshot.codec.ts'
import type { Transfers } from './transfers.ts'

export type SnapshotsDeps = {
  readonly directory: Pick<DirectoryStore, 'admit' | 'db' | 'read'>
  readonly hostId: string
  readonly engine: Pick<VmEngine, 'view' | 'guest'>
  readonly files: SnapshotFiles
  readonly transfers: Pick<Transfers, 'problem' | 'receive' | 'send'>
  readonly freeBytes: () => number
  readonly settings: SnapshotSettings
  readonly clock: Pick<Clock, 'monotonicMs' | 'nowMs'>
  readonly random: RandomBytes
  readonly log: Logger
}

/** `done` resolves at the end, with why no snapshot was kept; null if one was. */
type Begun = { readonly attempt: SnapshotAttempt; readonly done: Promise<Error | null> }

type Receiving = {
  readonly vmId: string
  readonly address: string
  readonly cause: SnapshotCause
  readonly onBytes: () => void
}

/** The instance is on another host of the fleet. */
type OnOtherHost = { readonly otherHostId: string }

/** Reads a ciphertext from another host of the fleet. */
export type OpenElsewhere = (hostId: string, from: RestoreRequest) => Promise<AsyncIterable<Uint8Array>>

/** Longer than the guest's own limit (guest/snapshots/snapshot.ts). */
const transferMs = 2 * 60 * 60 * 1_000 + 60_000
/** Time for a guest to begin fetching. */
const shortMs = 30_000
/** Share: two of one organization. */
const arrivingMax = 8
/** Share: this limit is the share of one organization. */
const arrivingPerOrganizationMax = 2
/** Share: `sendingPerOrganizationMax` of one organization. */
const sendingMax = 16
/** Share: this limit is the share of one organization. */
const sendingPerOrganizationMax = 4
const laterMs = 30_000

export class Snapshots {
  readonly #deps: SnapshotsDeps
  /** The last attempt of each instance. */
  readonly #attempts = new Map<string, SnapshotAttempt & { readonly organizationId: string }>()
  readonly #stopping = new AbortController()
  readonly #working = new Set<Promise<unknown>>()
  /** `done` of the attempt under way of each instance. Never rejects. */
  readonly #underWay = new Map<string, Promise<Error | null>>()
  readonly #ends: IdleEndNotes
  readonly #schedules = new ScheduleNotes()
  #failures = 0
  /** Instances without a record or an organization at the last look. */
  #missing: ReadonlySet<string> = new Set()
  /** Organization of each transfer to a VM. */
  readonly #sending = new Map<string, string>()

  constructor(deps: SnapshotsDeps) {
    this.#deps = deps
    this.#ends = new IdleEndNotes(deps.clock)
  }

  /**
   * Begins a snapshot of a ready instance, whose progress its attempt shows. Faults: not_found, conflict (not ready,
   * one is under way, switched off, no room), rate_limited (others are under way).
   */
  async take(caller: Principal, name: string): Promise<SnapshotAttempt | OnOtherHost> {
    const instance = await this.#ownToChange(caller, name)
    if (this.#isElsewhere(instance)) return { otherHostId: instance.hostId }
    return (await this.begin(instance, 'command')).attempt
  }

  /** Does the same for a caller within this host. */
  async begin(instance: Instance, cause: SnapshotCause): Promise<Begun> {
    const { id } = instance
    const begun = this.#begin(instance, cause)
    // From the first moment, so that no end of the instance comes between.
    if (!this.#underWay.has(id)) {
      const failure = begun.then(({ done }) => done).catch(toError)
      this.#underWay.set(id, failure)
      failure.then(() => this.#underWay.delete(id))
    }
    return await begun
  }

  /**
   * Takes one that is due by the owner's schedule, unless one is under way, or began by schedule within 15 minutes;
   * within twice the last pause, 4 hours at most, after one that found no room. Resolves once it begins. Never rejects.
   */
  async takeScheduled(instance: Instance): Promise<void> {
    const { id } = instance
    const nowMs = this.#deps.clock.monotonicMs()
    if (!this.#schedules.isDue(id, nowMs) || this.#underWay.has(id)) return
    try {
      const { done } = await this.begin(instance, 'schedule')
      this.#schedules.began(id, nowMs)
      done.then(failure => this.#schedules.ended(id, { hadRoom: !(failure instanceof RoomFault) }))
    } catch (error) {
      const message = shownReason(toError(error))
      this.#deps.log.debug('no snapshot by schedule', { instance: id, reason: message })
      this.#showSkipped(instance, message)
    }
  }

  /** Reports whether the last snapshot that a VM with a schedule has signed was not kept. */
  isLost({ id }: Instance): boolean {
    return this.#deps.files.isLost(id)
  }

  #showSkipped(instance: Instance, message: string): void {
    const { id, organizationId } = instance
    this.#attempts.set(id, { ...this.#newAttempt(instance), organizationId, state: 'skipped', message })
  }

  #newAttempt({ name }: Instance): SnapshotAttempt {
    const { clock, random } = this.#deps
    const nothing = { number: null, bytes: 0, message: null } as const
    return { instance: name, id: randomName(16, random), state: 'writing', ...nothing, started_at: iso(clock.nowMs()) }
  }

  async #begin(instance: Instance, cause: SnapshotCause): Promise<Begun> {
    const { files, engine } = this.#deps
    const { id: instanceId, organizationId } = instance
    const vm = instance.vmId === null ? null : engine.view(instance.vmId)
    const address = vm?.address ?? vm?.addressV6 ?? null
    if (instance.status !== 'ready' || vm === null || address === null)
      throw new Fault('conflict', `A snapshot needs a ready instance; this one is ${instance.status}.`)
    checkRoom(instance, { cause, moreBytes: 0 }, this.#deps)
    // Schedules leave one for commands and ends.
    const left = cause === 'schedule' ? 1 : 0
    if (
      files.arriving(null) + left >= arrivingMax ||
      files.arriving(organizationId) + left >= arrivingPerOrganizationMax
    )
      throw new LimitedFault('Other snapshots are under way; take this one when they are done.', laterMs)
    const arriving = await files.begin({ instanceId, organizationId })
    const attempt = this.#newAttempt(instance)
    const show = (change: Partial<SnapshotAttempt>) =>
      this.#attempts.set(instanceId, { ...attempt, organizationId, bytes: arriving.bytes(), ...change })
    show({})
    const work = this.#receive(instance, arriving, { vmId: vm.id, address, cause, onBytes: () => show({}) })
      .then(({ number }) => {
        show({ state: 'kept', number })
        return null
      })
      .catch((cause: unknown) => {
        const error = explained(cause)
        const state = isUnchanged(error) ? 'skipped' : 'failed'
        show({ state, message: shownReason(error) })
        if (state === 'failed') this.#failed(instance, toError(cause))
        return toError(cause)
      })
      .finally(() => this.#working.delete(work))
    this.#working.add(work)
    return { attempt, done: work }
  }

  /** Snapshots and attempts of an instance. Fault not_found. */
  async listOf(caller: Principal, name: string): Promise<SnapshotList | OnOtherHost> {
    const instance = await this.#own(caller, name)
    if (this.#isElsewhere(instance)) return { otherHostId: instance.hostId }
    const attempt = this.#attempts.get(instance.id)
    return {
      snapshots: this.#deps.files.of(instance.id).map(toSnapshot),
      attempts: attempt ? [toAttempt(attempt)] : [],
    }
  }

  /** All of the organization on this host. */
  list(caller: Principal): SnapshotList {
    const { id } = caller.organization
    const attempts = [...this.#attempts.values()].filter(({ organizationId }) => organizationId === id)
    return { snapshots: this.#deps.files.list(id).map(toSnapshot), attempts: attempts.map(toAttempt) }
  }

  /** Returns the record and the file of a ciphertext. Fault not_found. */
  async find(
    caller: Principal,
    from: RestoreRequest,
  ): Promise<(KeptSnapshot & { readonly path: string }) | OnOtherHost> {
    const instance = await this.#own(caller, from.instance)
    if (this.#isElsewhere(instance)) return { otherHostId: instance.hostId }
    const record = this.#kept(instance.id, from.number)
    return { ...record, path: this.#deps.files.path(record) }
  }

  /** Removes a snapshot. Fault not_found. */
  async remove(caller: Principal, from: RestoreRequest): Promise<Snapshot | OnOtherHost> {
    const found = await this.find(caller, from)
    if ('otherHostId' in found) return found
    await this.#ownToChange(caller, from.instance)
    const record = this.#kept(found.instanceId, found.number)
    this.#deps.files.remove(record)
    return toSnapshot(record)
  }

  /**
   * Has the VM of a ready instance fetch a snapshot of the organization. Resolves when it has begun. Faults: not_found,
   * conflict (not ready), rate_limited.
   */
  async restore(
    caller: Principal,
    name: string,
    { from, openElsewhere }: { readonly from: RestoreRequest; readonly openElsewhere: OpenElsewhere },
  ): Promise<RestoreBegun | OnOtherHost> {
    const { engine, transfers, random, log, settings } = this.#deps
    const instance = await this.#ownToChange(caller, name)
    if (this.#isElsewhere(instance)) return { otherHostId: instance.hostId }
    if (settings.keptPerInstance === 0) throw switchedOff()
    const found = await this.find(caller, from)
    const source = async () =>
      'otherHostId' in found ? await openElsewhere(found.otherHostId, from) : createReadStream(found.path)
    const vm = instance.vmId === null ? null : engine.view(instance.vmId)
    const address = vm?.address ?? vm?.addressV6 ?? null
    if (instance.status !== 'ready' || vm === null || address === null)
      throw new Fault('conflict', `A restore needs a ready instance; this one is ${instance.status}.`)
    const { id: organizationId } = caller.organization
    const ofOne = [...this.#sending.values()].filter(id => id === organizationId).length
    if (this.#sending.size >= sendingMax || ofOne >= sendingPerOrganizationMax)
      throw new LimitedFault('Other snapshots are being fetched; restore this one when they are done.', laterMs)
    const token = toHex(random(32))
    const pipe = randomName(16, random)
    this.#sending.set(token, organizationId)
    const failed = new AbortController()
    const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(transferMs), failed.signal])
    const work = transfers
      .send({ token, address, signal }, source)
      .catch(error => log.warn('a snapshot was not fetched whole', { instance: instance.id, reason: messageOf(error) }))
      .finally(() => {
        this.#sending.delete(token)
        this.#working.delete(work)
      })
    this.#working.add(work)
    try {
      await engine.guest(vm.id).restore({ port: settings.port, token }, pipe, shortMs)
    } catch (error) {
      failed.abort(error)
      throw explained(error)
    }
    return { pipe, bytes: 'bytes' in found ? found.bytes : 0 }
  }

  /**
   * Takes a snapshot before an idle end; one that its owner is taking counts, if it is kept. False if the end must
   * wait: others are under way, or there is no room, both for a day at most. Any other failure is logged.
   */
  async takeBeforeEnd(instance: Instance): Promise<boolean> {
    const { id } = instance
    if (!this.#ends.isDue(id)) return false
    if ((await this.#underWay.get(id)) === null) return true
    const failure = await this.begin(instance, 'idle_end')
      .then(({ done }) => done)
      .catch(toError)
      .then(error => (error !== null && isBusy(error) ? new LimitedFault(error.message, laterMs) : error))
    const waitMs = this.#ends.note(id, failure)
    if (failure instanceof LimitedFault && waitMs > 0) return false
    if (failure !== null)
      this.#deps.log.warn('no snapshot was taken before the end', { instance: id, reason: messageOf(failure) })
    if (failure === null || waitMs === 0) return true
    const until = iso(this.#deps.clock.nowMs() + waitMs)
    this.#showSkipped(instance, `${shownReason(failure)} The instance waits for room until ${until}, and then ends.`)
    return false
  }

  /** Notes that an instance is in use, for the wait of its next idle end. */
  noteUsed({ id }: Instance): void {
    this.#ends.used(id)
  }

  /** Never throws. */
  problems(): FoundProblem[] {
    const { files, freeBytes, settings, transfers, clock } = this.#deps
    if (settings.keptPerInstance === 0) return []
    return snapshotProblems(
      {
        ...settings,
        bytes: files.bytes(null),
        freeBytes: resultOr(freeBytes, null),
        failedEnds: this.#ends.failed,
        unreadable: files.unreadable(),
        listenProblem: transfers.problem,
      },
      clock.nowMs(),
    )
  }

  counts(): { readonly count: number; readonly bytes: number; readonly failures: number } {
    const { files } = this.#deps
    return { count: files.count(), bytes: files.bytes(null), failures: this.#failures }
  }

  /**
   * Removes snapshots of instances whose records are gone, and of organizations that are deleted. A record must be
   * missing at two calls: what is removed here cannot be restored. Fault fleet.unavailable before the first copy of a
   * fleet's directory.
   */
  removeOrphans(): void {
    const { directory, files, log } = this.#deps
    directory.admit()
    const missing = new Set([...files.instances(), ...this.#attempts.keys()].filter(id => !this.#isOwned(id)))
    for (const instanceId of missing) {
      if (!this.#missing.has(instanceId)) continue
      this.#attempts.delete(instanceId)
      this.#schedules.forget(instanceId)
      files.removeAll(instanceId)
      log.info('snapshots removed with the record of their instance', { instance: instanceId })
    }
    this.#missing = missing
  }

  #isOwned(instanceId: string): boolean {
    const { db } = this.#deps.directory
    const instance = instanceById(db, instanceId)
    return instance !== null && organizationById(db, instance.organizationId)?.deletingAtMs === null
  }

  /** Ends what is under way. Unfinished snapshots are dropped. */
  async stop(): Promise<void> {
    this.#stopping.abort(new Error('the service stops'))
    await Promise.all(this.#working)
  }

  async #receive(
    instance: Instance,
    arriving: Arriving,
    { vmId, address, cause, onBytes }: Receiving,
  ): Promise<KeptSnapshot> {
    const { engine, files, transfers, settings, clock, random, log } = this.#deps
    const token = toHex(random(32))
    const failed = new AbortController()
    const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(transferMs), failed.signal])
    const digest = new Bun.CryptoHasher('sha256')
    const write = async (chunk: Uint8Array) => {
      checkRoom(instance, { cause, moreBytes: chunk.length }, this.#deps)
      digest.update(chunk)
      await arriving.write(chunk)
      onBytes()
    }
    const newest = cause === 'schedule' ? files.of(instance.id).at(-1) : undefined
    const ifChanged = newest && digestIn(newest.signed)
    const take = async () => {
      const to = { port: settings.port, token }
      const signed = await engine.guest(vmId).snapshot(to, transferMs, ifChanged === undefined ? {} : { ifChanged })
      if (this.#schedules.has(instance.id)) arriving.noteSigned()
      return signed
    }
    try {
      // The first failure of the two is the one that is shown.
      const [signed] = await Promise.all([take(), transfers.receive({ token, address, signal }, write)])
      const number = numberIn(signed, { hostname: instance.hostname, sha256: digest.digest('hex') })
      const facts = { name: instance.name, number, createdAtMs: clock.nowMs(), signed }
      const record = await arriving.keep(cause === 'command' ? facts : { ...facts, isUnattended: true })
      log.info('snapshot kept', { instance: instance.id, number, bytes: record.bytes })
      this.#removeOld(record, cause)
      return record
    } catch (error) {
      failed.abort(error)
      await arriving.drop()
      throw error
    }
  }

  /** Never throws: the new snapshot is kept. The next one removes what this one could not. */
  #removeOld({ instanceId, number }: KeptSnapshot, cause: SnapshotCause): void {
    const { files, settings, log } = this.#deps
    const kept = files.of(instanceId).filter(record => record.number !== number)
    try {
      for (const old of replacedBy(cause, kept, settings.keptPerInstance) ?? []) files.remove(old)
    } catch (error) {
      log.warn('a replaced snapshot was not removed', { instance: instanceId, reason: messageOf(error) })
    }
  }

  async #own(caller: Principal, name: string): Promise<Instance> {
    return await this.#deps.directory.read(null, db => ownInstance(db, caller, name))
  }

  /** Checks the caller again, on what any host of the fleet has acknowledged: another one may have revoked the key. */
  async #ownToChange(caller: Principal, name: string): Promise<Instance> {
    const assertAllowed = (db: DirectoryDb) => assertStillAllowed(db, caller)
    return await this.#deps.directory.read({ assertAllowed }, db => ownInstance(db, caller, name))
  }

  #isElsewhere({ hostId }: Instance): boolean {
    return hostId !== this.#deps.hostId
  }

  #kept(instanceId: string, number: number): KeptSnapshot {
    const record = this.#deps.files.of(instanceId).find(record => record.number === number)
    if (record === undefined) throw new Fault('not_found', `There is no snapshot ${number} of this instance.`)
    return record
  }

  #failed({ id }: Instance, error: Error): void {
    this.#failures += 1
    this.#deps.log.warn('no snapshot was kept', { instance: id, reason: messageOf(error) })
  }
}
