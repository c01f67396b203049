// The warm pool: booted VMs without an owner, so that a create need not wait for a boot. Effects: the store, the VM
// engine.

import type { DirectoryDb } from '../store/db.ts'
import { instanceByVm, listLiving } from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { insertPoolVm, listPoolVms, namedVms, removePoolVm, setPoolBoxKey } from '../store/directory/pool.query.ts'
import type { PoolVm } from '../store/directory/pool.table.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import type { HeldState } from '../vm/held/held.plan.ts'
import { type HeldHost, type HeldVm, HeldVms } from '../vm/held/held-vms.ts'
import { type InstanceStart, lookOf, orphanVerdict, startOf, takeRank } from './pool.plan.ts'

/** `vmSpec`: spec of instance VMs. */
export type PoolDeps = HeldHost & {
  /** Number of VMs to keep. */
  readonly wanted: number
}

export type ClaimedVm = { readonly vmId: string; readonly start: InstanceStart }

export type PoolStatus = {
  readonly wanted: number
  readonly warm: number
  /** VMs that are not warm yet. */
  readonly booting: number
  /** Missing resource of the host for the next VM; null if none is missing. */
  readonly lacking: string | null
  readonly lastFailure: { readonly atMs: number; readonly reason: string } | null
  /** Null if nothing prevents the next start. */
  readonly nextAttemptAtMs: number | null
}

/** Counts since the daemon's start. */
export type PoolCounts = {
  readonly creates: Readonly<Record<InstanceStart, number>>
  readonly failures: number
  readonly refills: number
  /** Time from the row to the agent's hello, summed over all refills. */
  readonly refillMs: number
}

type Member = HeldVm<PoolVm>

/** Booting counts as working after a VM has been warm for this long; the next failure then counts as the first. */
const steadyMs = 60_000
/** Longest time for which pending claims have the CPU to themselves before the next refill begins. */
const headStartMs = 3_000
const headStartPollMs = 200

export class WarmPool {
  readonly #deps: PoolDeps
  readonly #held: HeldVms<PoolVm>
  /** Monotonic times at which this daemon requested each VM, and first saw it warm. */
  readonly #askedMs = new Map<string, number>()
  readonly #warmSinceMs = new Map<string, number>()
  /** VMs of the pool at the last check. */
  #known: ReadonlySet<string> = new Set()
  #claimedOrphans: ReadonlySet<string> = new Set()
  /** Whether to search orphans, once per sweep. */
  #sweepIsDue = true
  #lastFailure: PoolStatus['lastFailure'] = null
  #lacking: string | null = null
  #headStartEndsMs: number | null = null
  readonly #counts = { creates: { warm: 0, booting: 0, cold: 0 }, failures: 0, refills: 0, refillMs: 0 }

  constructor(deps: PoolDeps) {
    this.#deps = deps
    const { store, wanted, log } = deps
    this.#held = new HeldVms(deps, {
      noun: 'the warm pool',
      wanted,
      list: db => listPoolVms(db, store.hostId),
      remove: removePoolVm,
      named: db => namedVms(db, store.hostId),
      judge: (db, row) => this.#judge(db, row),
      look: () => this.#look(),
      onUnusableImage: reason => this.#noteFailure(reason),
      onLost: failure => {
        this.#counts.failures += 1
        this.#noteFailure(failure.reason)
        log.warn('a VM of the warm pool was lost', failure)
      },
      onDiscard: (row, reason) => this.#noteDiscard(row, reason),
      surplusReason: `the pool keeps ${wanted}`,
      shapeReason: 'the shape of instances has changed',
    })
  }

  /**
   * Takes the VM with the most progress, in the caller's transaction, so a rollback undoes it. Null if none has the
   * current image and configuration.
   */
  take(tx: DirectoryDb): ClaimedVm | null {
    const taken = this.#deps.wanted === 0 ? null : this.#held.take(tx)
    return taken && { vmId: taken.row.vmId, start: startOf(taken.rank) }
  }

  /**
   * Call it after a create was committed and before its VM is defined. Surplus VMs of the pool make room first. Never
   * throws.
   */
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
    this.#held.wake()
  }

  start(): void {
    const isConcerned = (vmId: string) => this.#known.has(vmId) || this.#known.size < this.#deps.wanted
    this.#held.start(isConcerned, () => {
      this.#sweepIsDue = true
    })
  }

  stop(): Promise<void> {
    return this.#held.stop()
  }

  status(): PoolStatus {
    const { store, clock, wanted } = this.#deps
    const members = [...this.#held.held(store.directory.db)]
    const warm = members.filter(({ rank }) => rank === 0).length
    const waitMs = this.#held.backOff.waitMs()
    return {
      wanted,
      warm,
      booting: members.length - warm,
      lacking: this.#lacking,
      lastFailure: this.#lastFailure,
      nextAttemptAtMs: waitMs > 0 ? clock.nowMs() + Math.ceil(waitMs) : null,
    }
  }

  counts(): PoolCounts {
    return this.#counts
  }

  /** Returns ids of claimed VMs without a record. */
  claimedOrphans(): readonly string[] {
    return [...this.#claimedOrphans]
  }

  #judge(db: DirectoryDb, row: PoolVm): HeldState {
    const { stage, reason } = lookOf(row, this.#deps.engine.view(row.vmId))
    const rank = takeRank(stage)
    if (stage === 'claimed' || instanceByVm(db, row.vmId) !== null) return { kind: 'taken' }
    if (rank !== null) return { kind: 'held', rank }
    return reason === null ? { kind: 'unwanted', reason: 'it was never made' } : { kind: 'lost', reason }
  }

  /** Runs one turn: drains the pool, searches orphans, records new VMs and starts a missing one. */
  #look(): void {
    const members = this.#drain()
    if (this.#sweepIsDue) this.#dismissOrphans()
    this.#sweepIsDue = false
    if (members === null) return
    this.#known = new Set(members.map(({ row }) => row.vmId))
    for (const member of members) this.#note(member)
    const { clock, wanted } = this.#deps
    if ([...this.#warmSinceMs.values()].some(sinceMs => clock.monotonicMs() - sinceMs >= steadyMs))
      this.#held.backOff.reset()
    if (members.length < wanted) this.#refill()
    else this.#lacking = null
  }

  /**
   * Drains the pool. Null if the image is unreadable at the moment, for example while it is replaced. Then no VM is
   * taken, started or drained.
   */
  #drain(): Member[] | null {
    if (this.#deps.wanted === 0) return this.#held.drain(null)
    const imageDigest = this.#held.image.read()
    return imageDigest === null ? null : this.#held.drain(imageDigest)
  }

  #noteFailure(reason: string): void {
    this.#lastFailure = { atMs: this.#deps.clock.nowMs(), reason }
  }

  #noteDiscard({ vmId }: PoolVm, reason: string): void {
    const { store, clock, log } = this.#deps
    this.#forget(vmId)
    log.info('a VM leaves the warm pool', { vm: vmId, reason })
    noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), kind: 'pool.dismissed', subject: vmId, detail: { reason } })
  }

  #forget(vmId: string): void {
    this.#askedMs.delete(vmId)
    this.#warmSinceMs.delete(vmId)
  }

  #note({ row: { vmId, boxKey }, rank }: Member): void {
    const { store, engine, clock, log } = this.#deps
    if (rank > 0 || this.#warmSinceMs.has(vmId)) return
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

  /** Starts one VM if there is room and boot capacity; the engine's next change starts the next. */
  #refill(): void {
    const { store, clock, room } = this.#deps
    const waitMs = Math.max(this.#held.backOff.waitMs(), this.#headStartMs())
    if (waitMs > 0) {
      this.#held.alarm(waitMs)
      return
    }
    const verdict = room()
    this.#lacking = verdict.kind === 'full' ? verdict.lacking : null
    const imageDigest = verdict.kind === 'admit' ? this.#held.image.read() : null
    if (imageDigest === null) return
    const row = this.#held.newRow(imageDigest)
    this.#headStartEndsMs = null
    this.#askedMs.set(row.vmId, clock.monotonicMs())
    insertPoolVm(store.directory.db, row)
    this.#held.define(row)
  }

  /** Returns how much longer the refill waits for pending claims. */
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

  /** Dismisses instance VMs without a record: from a pool whose daemon was killed, or with lost records. */
  #dismissOrphans(): void {
    const { engine, log } = this.#deps
    const claimed = new Set<string>()
    for (const vm of this.#held.unnamed()) {
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
