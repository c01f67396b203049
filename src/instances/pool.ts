// The warm pool: VMs of the instance shape, booted and nobody's, so that a create need not wait for a boot. Effects: the store, the VM engine.
//
// A VM is in the pool exactly as long as it has a row in the directory. The row is written before the VM is defined. It goes in one statement,
// and whoever has removed it decides: a create takes the VM, everything else dismisses it. So no VM is given away twice, whatever is killed.

import { assert } from '../base/assert.ts'
import { type Clock, pause } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import { newUuid, type RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { createWorkers, type Workers } from '../base/work/workers.ts'
import type { DirectoryDb, Store } from '../store/db.ts'
import { instanceByVm, listLiving } from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { insertPoolVm, listPoolVms, namedVms, removePoolVm, setPoolBoxKey } from '../store/directory/pool.query.ts'
import type { PoolVm } from '../store/directory/pool.table.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import { listVms } from '../store/ledger/vm.query.ts'
import type { Admission } from '../vm/admission.plan.ts'
import type { VmEngine, VmSpec } from '../vm/engine.ts'
import {
  backOffMs,
  type InstanceStart,
  lookOf,
  orphanVerdict,
  type PoolStage,
  startOf,
  surplus,
  takeRank,
} from './pool.plan.ts'

export type PoolDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger' | 'hostId'>
  readonly engine: Pick<VmEngine, 'define' | 'dismiss' | 'view' | 'onChange'>
  /** Of the VMs that are made for instances. */
  readonly vmSpec: VmSpec
  /** What such a VM is made of besides its image; VMs of another shape are drained. */
  readonly shape: string
  /** How many VMs are kept. */
  readonly wanted: number
  /** Digest of the image that a VM would boot now. Fault: image.invalid. */
  readonly imageDigest: () => string
  /** Whether one more VM finds room and a turn at once. */
  readonly room: () => Admission
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
}

export type Taken = { readonly vmId: string; readonly start: InstanceStart }

export type PoolStatus = {
  readonly wanted: number
  readonly warm: number
  /** On their way to being warm. */
  readonly booting: number
  /** What the host lacks for the next one; null: nothing. */
  readonly lacking: string | null
  readonly lastFailure: { readonly atMs: number; readonly reason: string } | null
  /** Null: nothing keeps it from asking now. */
  readonly nextAttemptAtMs: number | null
}

/** Since the daemon's start. */
export type PoolCounts = {
  readonly creates: Readonly<Record<InstanceStart, number>>
  readonly failures: number
  readonly refills: number
  /** From the row to the agent's hello, all refills together. */
  readonly refillMs: number
}

type Member = { readonly row: PoolVm; readonly stage: PoolStage; readonly reason: string | null }

const worker = 'pool'
const retryMinMs = 200
const retryMaxMs = 10_000
/** Everything is looked at this often, should an event have been lost; the image's manifest too. */
const sweepMs = 5_000
/** A VM that has been warm for this long shows that booting works: back-off begins anew. */
const steadyMs = 60_000
/** Claims under way have the CPU to themselves for at most this long before the next refill begins. */
const headStartMs = 3_000
const headStartPollMs = 200

export class WarmPool {
  readonly #deps: PoolDeps
  readonly #stopping = new AbortController()
  readonly #workers: Workers
  /** When this daemon asked for each VM, and when it first saw it warm; monotonic. */
  readonly #askedMs = new Map<string, number>()
  readonly #warmSinceMs = new Map<string, number>()
  /** Who is in the pool, as of the last look. */
  #known: ReadonlySet<string> = new Set()
  #claimedOrphans: ReadonlySet<string> = new Set()
  #sweepIsDue = true
  #failuresInRow = 0
  #nextAttemptMs = Number.NEGATIVE_INFINITY
  #lastFailure: PoolStatus['lastFailure'] = null
  #lacking: string | null = null
  #headStartEndsMs: number | null = null
  readonly #counts = { creates: { warm: 0, booting: 0, cold: 0 }, failures: 0, refills: 0, refillMs: 0 }

  constructor(deps: PoolDeps) {
    this.#deps = deps
    this.#workers = createWorkers({
      clock: deps.clock,
      work: async () => this.#look(),
      retryMinMs,
      retryMaxMs,
      onFailure: ({ error, retryMs }) => deps.log.error('the warm pool could not be looked after', { retryMs, error }),
    })
  }

  /**
   * Takes the VM that is furthest along out of the pool, in the transaction of its taker: one that is rolled back has taken nothing.
   * Null: there is none of the present image and shape.
   */
  take(tx: DirectoryDb): Taken | null {
    const { wanted, shape } = this.#deps
    const imageDigest = wanted === 0 ? null : this.#imageDigest()
    if (imageDigest === null) return null
    let best: { vmId: string; stage: PoolStage; rank: number } | null = null
    for (const { row, stage } of this.#members(tx)) {
      const rank = takeRank(stage)
      if (rank === null || row.shape !== shape || row.imageDigest !== imageDigest) continue
      if ((best === null || rank < best.rank) && instanceByVm(tx, row.vmId) === null)
        best = { vmId: row.vmId, stage, rank }
      if (best?.rank === 0) break
    }
    if (best === null) return null
    assert(removePoolVm(tx, best.vmId), 'an immediate transaction sees no other writer')
    return { vmId: best.vmId, start: startOf(best.stage) }
  }

  /** After a create was committed, and before its VM is asked for: what the pool holds in vain gives way first. Never throws. */
  accepted(instance: Pick<Instance, 'id' | 'vmId'>, start: InstanceStart): void {
    const { store, clock, log } = this.#deps
    this.#counts.creates[start] += 1
    if (instance.vmId !== null) this.#forget(instance.vmId)
    try {
      noteEvent(store.ledger.db, log, {
        nowMs: clock.nowMs(),
        kind: 'instance.accepted',
        subject: instance.id,
        detail: { start, vm: instance.vmId },
      })
      log.info('instance accepted', { instance: instance.id, vm: instance.vmId, start })
      if (start === 'cold') this.#drain()
    } catch (error) {
      log.error('the warm pool could not make room for a create', { instance: instance.id, error })
    }
    this.#wake()
  }

  start(): void {
    this.#deps.engine.onChange(vmId => {
      if (this.#known.has(vmId) || this.#known.size < this.#deps.wanted) this.#wake()
    })
    this.#wake()
    void this.#sweep()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#workers.stop()
  }

  status(): PoolStatus {
    const { store, clock, wanted } = this.#deps
    const members = this.#members(store.directory.db)
    const waitMs = this.#nextAttemptMs - clock.monotonicMs()
    return {
      wanted,
      warm: members.filter(({ stage }) => stage === 'warm').length,
      booting: members.filter(({ stage }) => stage !== 'warm' && takeRank(stage) !== null).length,
      lacking: this.#lacking,
      lastFailure: this.#lastFailure,
      nextAttemptAtMs: waitMs > 0 ? clock.nowMs() + Math.ceil(waitMs) : null,
    }
  }

  counts(): PoolCounts {
    return this.#counts
  }

  /** Ids of VMs that somebody has claimed and that no record names. */
  claimedOrphans(): readonly string[] {
    return [...this.#claimedOrphans]
  }

  #wake(): void {
    this.#workers.wake(worker)
  }

  async #sweep(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      await pause(this.#deps.clock, sweepMs, this.#stopping.signal)
      this.#sweepIsDue = true
      this.#wake()
    }
  }

  #members(db: DirectoryDb): Member[] {
    const { engine, store } = this.#deps
    return listPoolVms(db, store.hostId).map(row => ({ row, ...lookOf(row, engine.view(row.vmId)) }))
  }

  /** Null: the image cannot be read now, as while it is being replaced. Nothing is given away, asked for or drained then. */
  #imageDigest(): string | null {
    try {
      return this.#deps.imageDigest()
    } catch (error) {
      const reason = messageOf(error)
      if (this.#lastFailure?.reason !== reason)
        this.#deps.log.error('the image of the warm pool cannot be read', { error })
      this.#lastFailure = { atMs: this.#deps.clock.nowMs(), reason }
      return null
    }
  }

  /** One turn: what is lost or too much goes, what is new is noted, what is missing is asked for. */
  #look(): void {
    const members = this.#drain()
    if (this.#sweepIsDue) this.#dismissOrphans()
    this.#sweepIsDue = false
    if (members === null) return
    this.#known = new Set(members.map(({ row }) => row.vmId))
    for (const member of members) this.#note(member)
    const { clock, wanted } = this.#deps
    if ([...this.#warmSinceMs.values()].some(sinceMs => clock.monotonicMs() - sinceMs >= steadyMs))
      this.#failuresInRow = 0
    if (members.length < wanted) this.#refill()
    else this.#lacking = null
  }

  /** Dismisses what cannot or shall not be given away. What is left in the pool; null: not known without the image. */
  #drain(): Member[] | null {
    const { store, wanted, shape } = this.#deps
    const imageDigest = wanted === 0 ? '' : this.#imageDigest()
    if (imageDigest === null) return null
    const kept: Member[] = []
    let failure: string | null = null
    for (const member of this.#members(store.directory.db)) {
      const { row, stage, reason } = member
      const isTaken = stage === 'claimed' || instanceByVm(store.directory.db, row.vmId) !== null
      if (isTaken) removePoolVm(store.directory.db, row.vmId)
      else if (stage === 'absent') this.#discard(row, 'it was never made')
      else if (reason !== null) {
        failure = reason
        this.#discard(row, reason)
      } else if (wanted > 0 && row.imageDigest !== imageDigest) this.#discard(row, 'the image has changed')
      else if (wanted > 0 && row.shape !== shape) this.#discard(row, 'the shape of instances has changed')
      else kept.push(member)
    }
    if (failure !== null) this.#failed(failure)
    const tooMany = new Set(surplus(kept, wanted))
    for (const { row } of tooMany) this.#discard(row, `the pool keeps ${wanted}`)
    return kept.filter(member => !tooMany.has(member))
  }

  /** The row goes first: killed in between, its VM is an orphan of the next look. */
  #discard({ vmId }: PoolVm, reason: string): void {
    const { store, engine, clock, log } = this.#deps
    if (!removePoolVm(store.directory.db, vmId)) return
    this.#forget(vmId)
    log.info('a VM leaves the warm pool', { vm: vmId, reason })
    noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), kind: 'pool.dismissed', subject: vmId, detail: { reason } })
    engine.dismiss(vmId)
  }

  #forget(vmId: string): void {
    this.#askedMs.delete(vmId)
    this.#warmSinceMs.delete(vmId)
  }

  #failed(reason: string): void {
    const { clock, log } = this.#deps
    this.#failuresInRow += 1
    this.#counts.failures += 1
    const retryMs = backOffMs(this.#failuresInRow)
    this.#nextAttemptMs = clock.monotonicMs() + retryMs
    this.#lastFailure = { atMs: clock.nowMs(), reason }
    log.warn('a VM of the warm pool was lost', { reason, failures: this.#failuresInRow, retryMs })
  }

  #note({ row: { vmId, boxKey }, stage }: Member): void {
    const { store, engine, clock, log } = this.#deps
    if (stage !== 'warm' || this.#warmSinceMs.has(vmId)) return
    const guest = engine.view(vmId)?.guest
    if (boxKey === null && guest) setPoolBoxKey(store.directory.db, { vmId, boxKey: guest.boxKey })
    const nowMs = clock.monotonicMs()
    this.#warmSinceMs.set(vmId, nowMs)
    const askedMs = this.#askedMs.get(vmId)
    if (askedMs === undefined) return
    this.#counts.refills += 1
    this.#counts.refillMs += nowMs - askedMs
    log.info('a VM of the warm pool is warm', { vm: vmId, refillMs: Math.round(nowMs - askedMs) })
  }

  /** Asks for one VM where it finds room and a turn at once; the engine's next change asks for the next. */
  #refill(): void {
    const { store, engine, clock, random, vmSpec, shape, room } = this.#deps
    const waitMs = Math.max(this.#nextAttemptMs - clock.monotonicMs(), this.#headStartMs())
    if (waitMs > 0) {
      this.#workers.alarm(worker, waitMs)
      return
    }
    const verdict = room()
    this.#lacking = verdict.kind === 'full' ? verdict.lacking : null
    const imageDigest = verdict.kind === 'admit' ? this.#imageDigest() : null
    if (imageDigest === null) return
    const vmId = newUuid(random)
    this.#headStartEndsMs = null
    this.#askedMs.set(vmId, clock.monotonicMs())
    insertPoolVm(store.directory.db, { vmId, hostId: store.hostId, imageDigest, shape, nowMs: clock.nowMs() })
    engine.define(vmId, vmSpec)
  }

  /** How much longer the refill waits for claims under way. */
  #headStartMs(): number {
    const { store, engine, clock } = this.#deps
    const isClaiming = listLiving(store.directory.db, store.hostId).some(
      ({ status, vmId }) => status === 'provisioning' && vmId !== null && engine.view(vmId)?.state === 'running',
    )
    if (!isClaiming) {
      this.#headStartEndsMs = null
      return 0
    }
    this.#headStartEndsMs ??= clock.monotonicMs() + headStartMs
    return Math.min(headStartPollMs, this.#headStartEndsMs - clock.monotonicMs())
  }

  /** VMs of instances that no record names: of a pool whose daemon was killed, or of records that are lost. */
  #dismissOrphans(): void {
    const { store, engine, vmSpec, log } = this.#deps
    const named = namedVms(store.directory.db, store.hostId)
    const claimed = new Set<string>()
    for (const vm of listVms(store.ledger.db, store.hostId)) {
      if (named.has(vm.id) || vm.desired === 'gone' || vm.image !== vmSpec.image) continue
      const view = engine.view(vm.id)
      const verdict = view === null ? 'ask_later' : orphanVerdict(view)
      if (verdict === 'dismiss') {
        log.warn('a VM that no record names is dismissed', { vm: vm.id, state: vm.state })
        this.#journalOrphan(vm.id, verdict)
        engine.dismiss(vm.id)
      } else if (verdict === 'keep') {
        claimed.add(vm.id)
        if (this.#claimedOrphans.has(vm.id)) continue
        log.error('a claimed VM runs that no record names; it is left alone', { vm: vm.id, remedy: 'kill its QEMU' })
        this.#journalOrphan(vm.id, verdict)
      }
    }
    this.#claimedOrphans = claimed
  }

  #journalOrphan(vmId: string, verdict: string): void {
    const { store, clock, log } = this.#deps
    noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), kind: 'vm.orphan', subject: vmId, detail: { verdict } })
  }
}
