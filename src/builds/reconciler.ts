// Moves every build of this host towards its end: its turn, its VM, the build itself (follow.ts), cleanup. Effects:
// the VM engine, the store, files. One level-triggered worker per build, and one for the queue.

import type { Clock } from '../base/clock.ts'
import { newUuid, type RandomBytes } from '../base/ids.ts'
import { Ages } from '../base/work/ages.ts'
import { createWorkers, type Workers } from '../base/work/workers.ts'
import type { BuildEvent as WireEvent } from '../contract/http/build.ts'
import type { Store } from '../store/db.ts'
import {
  type BuildSet,
  buildById,
  buildByVm,
  closeBuild,
  countBuilds,
  countReserved,
  listOpenBuilds,
  moveBuild,
  VM_STATES,
} from '../store/directory/build.query.ts'
import type { Build } from '../store/directory/build.table.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import type { VmSpec } from '../vm/engine.ts'
import { type BuildEvent, nextState, taskOf } from './build.machine.ts'
import { type EventLogs, hostEvent } from './events/events.ts'
import { BuildFollower, broken, type FollowDeps, type Followed } from './events/follow.ts'
import { listInTurn } from './turns.query.ts'
import type { BuildVms } from './vms.ts'

export type BuildReconcilerDeps = Omit<FollowDeps, 'directory' | 'clock'> & {
  readonly store: Pick<Store, 'directory' | 'ledger' | 'hostId'>
  readonly clock: Clock
  readonly random: RandomBytes
  readonly events: EventLogs
  readonly vms: Pick<BuildVms, 'take' | 'room' | 'wake'>
  readonly vmSpec: VmSpec
  readonly concurrentMax: number
  /** Closing lines for the client of a successful build: how to fetch and verify it. */
  readonly farewell: (build: Build) => readonly string[]
}

/** Since the daemon's start. */
export type BuildCounts = { readonly [state in 'ok' | 'failed' | 'cancelled']: number }

const queue = 'queue'
const sweepMs = 5_000
const roomRetryMs = 2_000
/** A build that found no VM for this long finds none. */
const queuedMsMax = 24 * 60 * 60 * 1000
/** For its VM to be up. The engine has deadlines of its own; this one is for what it does not know of. */
const startingMsMax = 60 * 60 * 1000

export class BuildReconciler {
  readonly #deps: BuildReconcilerDeps
  readonly #stopping = new AbortController()
  readonly #workers: Workers
  readonly #queuedAges: Ages
  readonly #startingAges: Ages
  readonly #positions = new Map<string, number>()
  #noRoomUntilMs = Number.NEGATIVE_INFINITY
  readonly #counts = { ok: 0, failed: 0, cancelled: 0 }

  constructor(deps: BuildReconcilerDeps) {
    this.#deps = deps
    this.#queuedAges = new Ages(deps.clock)
    this.#startingAges = new Ages(deps.clock)
    this.#workers = createWorkers({
      clock: deps.clock,
      work: key => (key === queue ? this.#lookAtQueue() : this.#look(key)),
      onFailure: ({ key, error, retryMs }) =>
        deps.log.warn('build work failed; it will be tried again', { build: key, retryMs, error }),
    })
  }

  /** Lets a build be looked at now. Never throws, never waits. */
  wake(buildId: string): void {
    this.#workers.wake(buildId)
    this.#workers.wake(queue)
  }

  /** After a cancel. The VM is dismissed at once, for the build's worker may be in the middle of a request to it. */
  wakeCancelled({ id, vmId }: Pick<Build, 'id' | 'vmId'>): void {
    this.#deps.gate.close(id)
    if (vmId !== null) this.#deps.engine.dismiss(vmId)
    this.wake(id)
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
    this.#queuedAges.keepOnly(ids)
    this.#startingAges.keepOnly(ids)
    for (const id of ids) this.#workers.wake(id)
    this.#workers.wake(queue)
  }

  /** Names VMs for as many builds as may have one, in the order of their turns. */
  async #lookAtQueue(): Promise<void> {
    const { store, clock, random, vms, concurrentMax } = this.#deps
    const { directory, hostId } = store
    let waiting = listInTurn(directory.db, hostId)
    const waitMs = this.#noRoomUntilMs - clock.monotonicMs()
    if (waitMs > 0) this.#workers.alarm(queue, waitMs)
    while (waitMs <= 0 && waiting.length > 0 && !this.#stopping.signal.aborted) {
      const [first] = waiting
      const busy = countBuilds(directory.db, { hostId, states: VM_STATES }) + countReserved(directory.db, { hostId })
      if (first === undefined || busy >= concurrentMax) break
      // Judged before the transaction: it is the ledger's to say.
      const hasRoom = vms.room().kind === 'admit'
      const vmId = directory.transact(tx => {
        const id = vms.take(tx) ?? (hasRoom ? newUuid(random) : null)
        if (id === null) return null
        const set = { vmId: id, startedAtMs: clock.nowMs() }
        return moveBuild(tx, { id: first.id, from: 'queued', to: 'starting', ...set }) ? id : null
      })
      if (vmId === null && buildById(directory.db, first.id)?.state === 'queued') {
        this.#workers.alarm(queue, roomRetryMs)
        break
      }
      this.#workers.wake(first.id)
      waiting = listInTurn(directory.db, hostId)
    }
    this.#announcePositions(waiting)
    for (const { id, createdAtMs } of waiting) {
      if (this.#queuedAges.ageMs(id, createdAtMs) < queuedMsMax) continue
      const build = buildById(directory.db, id)
      if (build !== null) this.#end(build, broken('internal', 'No build VM was free for a day.'))
    }
  }

  #announcePositions(waiting: readonly { readonly id: string }[]): void {
    for (const id of [...this.#positions.keys()]) {
      if (!waiting.some(build => build.id === id)) this.#positions.delete(id)
    }
    for (const [position, { id }] of waiting.entries()) {
      const before = this.#positions.get(id)
      this.#positions.set(id, position)
      // The first one is the service's to say, with the response.
      if (before !== undefined && before !== position) this.#say(id, { type: 'queued', position })
    }
  }

  /** One turn of a build's worker. */
  async #look(id: string): Promise<void> {
    const { store, engine, vmSpec } = this.#deps
    const build = buildById(store.directory.db, id)
    if (build === null || build.hostId !== store.hostId || build.closedAtMs !== null) return
    const { vmId } = build
    const vm = vmId === null ? null : engine.view(vmId)
    switch (taskOf(build.state, vm?.state ?? null)) {
      case 'wait':
        if (build.state === 'starting' && this.#startingAges.ageMs(id, build.startedAtMs ?? 0) >= startingMsMax) {
          this.#end(build, broken('internal', 'The build VM was not up within an hour.'))
        }
        return
      case 'define_vm':
        // A row that names no VM cannot be helped.
        if (vmId === null) this.#end(build, broken('internal', 'The build has no VM.'))
        else {
          this.#say(id, { type: 'vm', msg: 'A virtual machine of its own is started for this build.' })
          engine.define(vmId, vmSpec)
        }
        return
      case 'order':
        // A restarted daemon may have attached without having been greeted yet; the greeting wakes us.
        if (vmId !== null && vm?.guest) await this.#order(build, vmId)
        return
      case 'follow':
        if (vmId !== null && vm?.guest) await this.#follow(build, vmId)
        return
      case 'fail_with_vm':
        if (build.state === 'starting' && build.orderedAtMs === null && vm?.failureCode === 'capacity_exhausted') {
          this.#requeue(build)
        } else this.#end(build, broken('internal', `The build VM failed: ${vm?.failureMessage ?? 'it is gone'}`))
        return
      case 'close':
        this.#close(build)
    }
  }

  async #order(build: Build, vmId: string): Promise<void> {
    const { files, clock, log, store, engine } = this.#deps
    const done = await this.#follower(build, vmId).order(build)
    if (done !== null) return this.#end(build, done)
    const moved = this.#move(build, 'ordered', {})
    if (moved === null) return
    const summary = engine.imageSummary(vmId)
    const verified = summary === null ? '' : ` Its image was verified before it was started: sha256:${summary}.`
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
    this.#end(build, await this.#follower(build, vmId).follow(build))
  }

  #follower(build: Build, vmId: string): BuildFollower {
    const events = this.#deps.events.of(build.id)
    const deps = { ...this.#deps, directory: this.#deps.store.directory }
    return new BuildFollower(deps, { build, vmId, events, signal: this.#stopping.signal })
  }

  /** Its VM found no room after all. */
  #requeue(build: Build): void {
    const { engine, clock } = this.#deps
    if (build.vmId !== null) engine.dismiss(build.vmId)
    this.#move(build, 'no_room', { vmId: null, startedAtMs: null })
    // So that its place in the queue is said.
    this.#positions.set(build.id, -1)
    this.#noRoomUntilMs = clock.monotonicMs() + roomRetryMs
    this.#workers.wake(queue)
  }

  #end(build: Build, followed: Followed): void {
    const { clock, store, log } = this.#deps
    if (followed.kind === 'unwanted') {
      this.#workers.wake(build.id)
      return
    }
    const finishedAtMs = clock.nowMs()
    const row = buildById(store.directory.db, build.id) ?? build
    const moved =
      followed.kind === 'finished'
        ? this.#move(row, 'finished', { ...followed.result, finishedAtMs })
        : this.#move(row, 'broken', { errorType: followed.errorType, error: followed.error, finishedAtMs })
    if (moved === null) return
    const { state, errorType } = moved
    log.info('a build has ended', { build: build.id, state, ...(errorType === null ? {} : { errorType }) })
    noteEvent(store.ledger.db, log, {
      nowMs: finishedAtMs,
      kind: `build.${state}`,
      subject: build.id,
      detail: { errorType },
    })
    // Its place is another's from now on.
    this.#close(moved)
  }

  /** Null: somebody else has moved it. Either way it is looked at again. */
  #move(build: Build, event: BuildEvent, set: BuildSet): Build | null {
    const { directory } = this.#deps.store
    const to = nextState(build.state, event)
    const isMoved = to !== null && moveBuild(directory.db, { id: build.id, from: build.state, to, ...set })
    this.#workers.wake(build.id)
    return isMoved ? buildById(directory.db, build.id) : null
  }

  /** Cleans up after a build that has ended; each part may be repeated. */
  #close(build: Build): void {
    const { store, engine, files, events, gate, vms, clock, farewell } = this.#deps
    const { id, vmId, state } = build
    gate.close(id)
    if (vmId !== null) engine.dismiss(vmId)
    files.removeFile(id, 'source')
    files.removeFile(id, 'resultPart')
    if (state !== 'ok') files.removeFile(id, 'result')
    const log = events.of(id)
    if (!log.isComplete) {
      const goodbye = state === 'ok' ? farewell(build).map(hostEvent) : []
      log.append([...goodbye, { data: completeEvent(build), seq: null }])
    }
    closeBuild(store.directory.db, { id, diskBytes: files.sizeBytes(id), nowMs: clock.nowMs() })
    events.close(id)
    if (state === 'ok' || state === 'failed' || state === 'cancelled') this.#counts[state] += 1
    vms.wake()
    this.#workers.wake(queue)
  }

  #say(id: string, data: WireEvent): void {
    this.#deps.events.of(id).append([{ data, seq: null }])
  }
}

function completeEvent({ state, errorType, error }: Build): WireEvent {
  if (state === 'ok') return { type: 'complete', result: { status: 'ok' } }
  return {
    type: 'complete',
    result: { status: 'failed', error: error ?? 'It failed.', error_type: errorType ?? 'internal' },
  }
}
