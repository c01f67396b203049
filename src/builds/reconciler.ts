// Moves every build of this host towards its end: its turn, its VM, the build itself (follow.ts), cleanup. Effects: the
// VM engine, the store, files. One level-triggered worker per build, and one for the queue (queue.ts).
//
// Only a build's host writes its progress (store/directory). Claim, return and finish are changes of the directory, so
// a build finishes exactly once.

import { type Clock, pause } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { newUuid, type RandomBytes } from '../base/ids.ts'
import { AgeTracker } from '../base/work/age-tracker.ts'
import { createWorkers, type Workers } from '../base/work/workers.ts'
import type { BuildEvent as WireEvent } from '../contract/http/build.ts'
import type { DirectoryTx, Store } from '../store/db.ts'
import {
  buildById,
  buildByVm,
  closeBuild,
  handBuild,
  listOpenBuilds,
  moveBuild,
  setBuild,
} from '../store/directory/build.query.ts'
import type { Build } from '../store/directory/build.table.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import type { VmSpec } from '../vm/engine.ts'
import { nextState, taskOf } from './build.machine.ts'
import { type EventLogs, hostEvent } from './events/events.ts'
import { type BuildEnding, BuildFollower, broken, type FollowDeps } from './events/follow.ts'
import { type Handover, sourceHostOf } from './handover.ts'
import { BuildQueue, type BuildQueueDeps } from './queue.ts'
import type { BuildVms } from './vms.ts'

export type BuildReconcilerDeps = Omit<FollowDeps, 'directory' | 'clock'> &
  Pick<BuildQueueDeps, 'settings'> & {
    readonly store: Pick<Store, 'directory' | 'ledger' | 'hostId'>
    readonly handover: Pick<Handover, 'fetchSource' | 'fetchEvents' | 'startEventsAfterLoss'>
    readonly clock: Clock
    readonly random: RandomBytes
    readonly events: EventLogs
    readonly vms: Pick<BuildVms, 'take' | 'room' | 'hasWarm' | 'wake'>
    readonly vmSpec: VmSpec
    readonly fetchTimeoutMs?: number | undefined
    /** Returns the closing lines for the client of a successful build: how to fetch and verify it. */
    readonly closingLines: (build: Build) => readonly string[]
  }

/** Counts since the daemon's start. */
export type BuildCounts = { readonly [state in 'ok' | 'failed' | 'cancelled']: number }

const queue = 'queue'
const sweepMs = 5_000
/** Delay before an unreachable directory is retried. */
const directoryRetryMs = 1_000
/** Timeout for fetching a source from another host; the build then returns to the queue. */
const fetchTimeoutMsDefault = 30_000
/** Timeout for its VM to start. The engine has its own timeouts; this one covers failures that it cannot detect. */
const startingMsMax = 60 * 60 * 1000

export class BuildReconciler {
  readonly #deps: BuildReconcilerDeps
  readonly #stopping = new AbortController()
  readonly #workers: Workers
  readonly #queue: BuildQueue
  readonly #startingAges: AgeTracker
  readonly #counts = { ok: 0, failed: 0, cancelled: 0 }

  constructor(deps: BuildReconcilerDeps) {
    this.#deps = deps
    this.#startingAges = new AgeTracker(deps.clock)
    this.#queue = new BuildQueue(deps, {
      say: (id, event) => this.#say(id, event),
      onClaimed: id => this.#workers.wake(id),
      onOverdue: build => this.#end(build, broken('internal', 'No build VM was free for a day.')),
      alarm: ms => this.#workers.alarm(queue, ms),
      isStopping: () => this.#stopping.signal.aborted,
    })
    this.#workers = createWorkers({
      clock: deps.clock,
      work: key => (key === queue ? this.#queue.look() : this.#look(key)),
      onFailure: ({ key, error, retryMs }) =>
        deps.log.warn('work on a build failed; retrying', { build: key, retryMs, error }),
    })
  }

  /** Reconciles a build now. Never throws, never waits. */
  wake(buildId: string): void {
    this.#workers.wake(buildId)
    this.#workers.wake(queue)
  }

  /**
   * Call it after a cancel. Dismisses the VM at once, because the build's worker may be in the middle of a request to
   * it.
   */
  wakeCancelled({ id, vmId }: Pick<Build, 'id' | 'vmId'>): void {
    this.#deps.gate.close(id)
    if (vmId !== null) this.#deps.engine.dismiss(vmId)
    this.wake(id)
  }

  /** Call it after rows of these builds have changed, on any host. Never throws, never waits. */
  changed(ids: readonly string[]): void {
    for (const id of ids) {
      try {
        this.#follows(id)
      } catch (error) {
        this.#deps.log.error('a change of a build could not be followed', { build: id, error })
      }
    }
    this.#workers.wake(queue)
  }

  #follows(id: string): void {
    const { store, events, files } = this.#deps
    const build = buildById(store.directory.db, id)
    if (build?.hostId === store.hostId) {
      const isOver = nextState(build.state, 'cancelled') === null
      if (isOver && build.closedAtMs === null) this.wakeCancelled(build)
      else this.#workers.wake(id)
      return
    }
    // The build belongs to another host, from which readers continue to get its events.
    events.close(id)
    const isWanted = build !== null && sourceHostOf(build) === store.hostId && build.closedAtMs === null
    if (!isWanted) files.remove(id)
  }

  start(): void {
    const { engine, store } = this.#deps
    engine.onChange(vmId => {
      const build = buildByVm(store.directory.db, vmId)
      if (build !== null && build.closedAtMs === null) this.#workers.wake(build.id)
      this.#workers.wake(queue)
    })
    this.#workers.sweep(sweepMs, () => this.#wakeAll())
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#workers.stop()
  }

  counts(): BuildCounts {
    return this.#counts
  }

  #wakeAll(): void {
    const { directory, hostId } = this.#deps.store
    const open = listOpenBuilds(directory.db, hostId)
    const ids = open.map(({ id }) => id)
    this.#queue.keepOnly(ids)
    this.#startingAges.keepOnly(ids)
    for (const id of ids) this.#workers.wake(id)
    this.#workers.wake(queue)
  }

  /** Runs one turn of a build's worker. */
  async #look(id: string): Promise<void> {
    const { store, engine, vmSpec } = this.#deps
    const build = buildById(store.directory.db, id)
    if (build === null || build.hostId !== store.hostId || build.closedAtMs !== null) return
    const { vmId } = build
    const vm = vmId === null ? null : engine.view(vmId)
    switch (taskOf(build.state, vm?.state ?? null)) {
      case 'wait':
        if (build.state === 'starting' && this.#startingAges.ageMs(id, build.startedAtMs ?? 0) >= startingMsMax) {
          await this.#end(build, broken('internal', 'The build VM did not start within an hour.'))
        }
        return
      case 'define_vm':
        if (vmId === null) await this.#prepare(build)
        else {
          this.#say(id, { type: 'vm', msg: 'Starting a virtual machine for this build.' })
          engine.define(vmId, vmSpec)
        }
        return
      case 'order':
        // A restarted daemon may have attached before the guest's greeting, which wakes this worker.
        if (vmId !== null && vm?.guest) await this.#order(build, vmId)
        return
      case 'follow':
        if (vmId !== null && vm?.guest) await this.#follow(build, vmId)
        return
      case 'fail_with_vm':
        if (build.state === 'starting' && build.orderedAtMs === null && vm?.failureCode === 'capacity_exhausted') {
          await this.#requeue(build)
        } else
          await this.#end(
            build,
            broken('internal', `The build VM failed: ${vm?.failureMessage ?? 'it no longer exists'}`),
          )
        return
      case 'close':
        await this.#close(build)
    }
  }

  /** Fetches the source, then assigns the VM: the best warm one, or a new one. */
  async #prepare(build: Build): Promise<void> {
    const { store, handover, random, vms } = this.#deps
    const { directory, hostId } = store
    const { id } = build
    if (sourceHostOf(build) !== hostId) {
      try {
        await handover.fetchSource(build, this.#stopping.signal)
      } catch (error) {
        return await this.#withoutSource(build, error)
      }
    }
    directory.transact(tx => {
      const row = buildById(tx, id)
      if (row?.state !== 'starting' || row.hostId !== hostId || row.vmId !== null) return
      setBuild(tx, { id, state: 'starting', sourceHostId: null, vmId: vms.take(tx) ?? newUuid(random) })
    })
    this.#workers.wake(id)
  }

  async #withoutSource(build: Build, error: unknown): Promise<void> {
    const { store, handover } = this.#deps
    if (!(error instanceof Fault && error.code === 'fleet.unavailable')) {
      await this.#end(
        build,
        broken('internal', 'The source of the build could not be fetched from the host that accepted it.'),
      )
      return
    }
    const isOverdue =
      this.#startingAges.ageMs(build.id, build.startedAtMs ?? 0) >= (this.#deps.fetchTimeoutMs ?? fetchTimeoutMsDefault)
    // A VM fetches a git repository itself.
    const isOnlyEvents = build.sourceKind === 'git'
    const isLost = isOnlyEvents && (await store.directory.change(tx => isGone(tx, sourceHostOf(build))))
    if (isOnlyEvents && (isOverdue || isLost)) await handover.startEventsAfterLoss(build)
    else if (isOverdue) return await this.#giveBack(build)
    throw error
  }

  /** Returns the build to the host with its source, because the source is unavailable at the moment. */
  async #giveBack(build: Build): Promise<void> {
    const { files, events } = this.#deps
    const { id } = build
    const hostId = sourceHostOf(build)
    this.#queue.avoid(hostId)
    const isMoved = await this.#change(tx => {
      const row = buildById(tx, id)
      if (row?.state !== 'starting' || row.claims !== build.claims) return false
      if (isGone(tx, hostId)) {
        const error = 'The host that had the source of this build was lost; submit it again.'
        const end = { errorType: 'internal', error, finishedAtMs: tx.nowMs } as const
        return moveBuild(tx, { id, from: 'starting', to: 'failed', ...end })
      }
      return handBuild(tx, { id, from: 'starting', to: 'queued', hostId, ...unclaimedFields })
    })
    this.#workers.wake(id)
    if (isMoved !== true || buildById(this.#deps.store.directory.db, id)?.hostId !== hostId) return
    events.close(id)
    files.remove(id)
  }

  async #order(build: Build, vmId: string): Promise<void> {
    const { files, clock, log, store, engine } = this.#deps
    const done = await this.#follower(build, vmId).order(build)
    if (done !== null) return await this.#end(build, done)
    // Only this host writes this change, because a VM does not wait for the directory.
    const isMoved = moveBuild(store.directory.db, { id: build.id, from: 'starting', to: 'running' })
    this.#workers.wake(build.id)
    const moved = isMoved ? buildById(store.directory.db, build.id) : null
    if (moved === null) return
    const summary = engine.imageSummary(vmId)
    const verified = summary === null ? '' : ` Its image was verified before the start: sha256:${summary}.`
    this.#say(build.id, { type: 'vm', msg: `The virtual machine ${vmId} has its order.${verified}` })
    files.removeFile(build.id, 'source')
    noteEvent(store.ledger.db, log, {
      nowMs: clock.nowMs(),
      kind: 'build.ordered',
      subject: build.id,
      detail: { vm: vmId },
    })
    await this.#follow(moved, vmId)
  }

  async #follow(build: Build, vmId: string): Promise<void> {
    await this.#end(build, await this.#follower(build, vmId).follow(build))
  }

  #follower(build: Build, vmId: string): BuildFollower {
    const events = this.#deps.events.open(build.id)
    const deps = { ...this.#deps, directory: this.#deps.store.directory }
    return new BuildFollower(deps, { build, vmId, events, signal: this.#stopping.signal })
  }

  /** Returns the build to the queue, because there was no room for its VM after all. */
  async #requeue(build: Build): Promise<void> {
    const { engine, store } = this.#deps
    const { id } = build
    this.#queue.requeue(id)
    if (build.vmId !== null) engine.dismiss(build.vmId)
    await this.#change(tx => {
      const row = buildById(tx, id)
      if (row?.state !== 'starting' || row.claims !== build.claims) return
      handBuild(tx, { id, from: 'starting', to: 'queued', hostId: store.hostId, ...unclaimedFields })
    })
    this.#queue.requeue(id)
    this.#workers.wake(queue)
  }

  async #end(build: Build, followed: BuildEnding): Promise<void> {
    const { clock, store, log } = this.#deps
    const { id } = build
    if (followed.kind === 'unwanted') {
      this.#workers.wake(id)
      return
    }
    const finishedAtMs = clock.nowMs()
    const moved = await this.#change(tx => {
      const row = buildById(tx, id)
      if (row === null || row.hostId !== store.hostId || row.claims !== build.claims) return null
      const [event, set] =
        followed.kind === 'finished'
          ? (['finished', followed.result] as const)
          : (['broken', { errorType: followed.errorType, error: followed.error }] as const)
      const to = nextState(row.state, event)
      const isMoved = to !== null && moveBuild(tx, { id, from: row.state, to, ...set, finishedAtMs })
      return isMoved ? buildById(tx, id) : null
    })
    // Another process has changed it. In both cases it is reconciled again.
    this.#workers.wake(id)
    if (moved === null) return
    const { state, errorType } = moved
    log.info('a build has ended', { build: id, state, ...(errorType === null ? {} : { errorType }) })
    noteEvent(store.ledger.db, log, {
      nowMs: finishedAtMs,
      kind: `build.${state}`,
      subject: id,
      detail: { errorType },
    })
    // From now on the slot is free for another build.
    await this.#close(moved)
  }

  /** Changes the directory, and retries while a fleet's is unreachable. Null if this daemon is stopping. */
  async #change<T>(work: (tx: DirectoryTx) => T): Promise<T | null> {
    const { store, clock } = this.#deps
    const { signal } = this.#stopping
    while (!signal.aborted) {
      try {
        return await store.directory.change(work)
      } catch (error) {
        if (!(error instanceof Fault && error.code === 'fleet.unavailable')) throw error
        await pause(clock, directoryRetryMs, signal)
      }
    }
    return null
  }

  /** Cleans up after a build has ended. Each part may be repeated. */
  async #close(build: Build): Promise<void> {
    const { store, engine, files, events, gate, vms, clock, closingLines } = this.#deps
    const { id, vmId, state } = build
    gate.close(id)
    if (vmId !== null) engine.dismiss(vmId)
    await this.#fetchEvents(build)
    // Another worker turn may have closed it in the meantime.
    if (buildById(store.directory.db, id)?.closedAtMs !== null) return
    files.removeFile(id, 'source')
    files.removeFile(id, 'resultPart')
    if (state !== 'ok') files.removeFile(id, 'result')
    const log = events.open(id)
    if (!log.isComplete) {
      const goodbye = state === 'ok' ? closingLines(build).map(hostEvent) : []
      log.append([...goodbye, { data: completeEvent(build), seq: null }])
    }
    closeBuild(store.directory.db, { id, diskBytes: files.sizeBytes(id), nowMs: clock.nowMs() })
    events.close(id)
    if (state === 'ok' || state === 'failed' || state === 'cancelled') this.#counts[state] += 1
    vms.wake()
    this.#workers.wake(queue)
  }

  /**
   * Fetches the events of a build that ended before its source arrived, so that its log includes what its client has
   * read.
   */
  async #fetchEvents(build: Build): Promise<void> {
    const { store, handover } = this.#deps
    if (sourceHostOf(build) === store.hostId) return
    try {
      await handover.fetchEvents(build, this.#stopping.signal)
    } catch (error) {
      if (this.#stopping.signal.aborted) throw error
      await handover.startEventsAfterLoss(build)
    }
  }

  #say(id: string, data: WireEvent): void {
    this.#deps.events.open(id).append([{ data, seq: null }])
  }
}

function isGone({ hosts }: DirectoryTx, hostId: string): boolean {
  return hosts.find(hostId)?.isLost !== false
}

const unclaimedFields = { vmId: null, startedAtMs: null, sourceHostId: null } as const

function completeEvent({ state, errorType, error }: Build): WireEvent {
  if (state === 'ok') return { type: 'complete', result: { status: 'ok' } }
  return {
    type: 'complete',
    result: { status: 'failed', error: error ?? 'It failed.', error_type: errorType ?? 'internal' },
  }
}
