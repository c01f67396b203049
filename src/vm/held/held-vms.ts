// VMs that wait for an owner. Effects: the store, the VM engine.
//
// A VM is held exactly as long as it has a row. The row is written before the VM is defined and deleted in one
// statement; the caller that deleted it takes or dismisses the VM. So no VM is taken twice or left behind, whenever the
// daemon is killed.

import { assert } from '../../base/assert.ts'
import { newUuid } from '../../base/ids.ts'
import type { Runtime } from '../../base/runtime.ts'
import { BackOff } from '../../base/work/back-off-state.ts'
import { createWorkers, type Workers } from '../../base/work/workers.ts'
import type { DirectoryDb, Store } from '../../store/db.ts'
import type { Vm } from '../../store/ledger/vm.table.ts'
import type { Admission } from '../admission.plan.ts'
import type { VmEngine, VmSpec } from '../engine.ts'
import { furthest, type HeldRow, type HeldState, surplus } from './held.plan.ts'
import { Template } from './template.ts'
import { unnamedVms } from './unnamed.query.ts'

/** Parts and settings that all owners of held VMs share. */
export type HeldHost = Runtime & {
  readonly store: Pick<Store, 'directory' | 'ledger' | 'hostId'>
  readonly engine: Pick<VmEngine, 'define' | 'dismiss' | 'view' | 'onChange'>
  readonly vmSpec: VmSpec
  /** Launch settings other than the image, as text; VMs with different settings are drained. */
  readonly shape: string
  /** Returns the digest of the image that a VM would boot now. Throws Fault image.invalid. */
  readonly imageDigest: () => string
  /** Reports whether one more VM could start at once. */
  readonly room: () => Admission
}

export type NewRow = HeldRow & { readonly hostId: string; readonly nowMs: number }

/** The owner's rows and policy. */
export type HeldPolicy<Row extends HeldRow> = {
  /** Name of these VMs in the log. */
  readonly noun: string
  /** Number of VMs to keep. */
  readonly wanted: number
  /** Returns the rows of this host, oldest first. */
  readonly list: (db: DirectoryDb) => Row[]
  /** Deletes the row. True for exactly one caller, who decides what happens to the VM. */
  readonly remove: (db: DirectoryDb, vmId: string) => boolean
  /** Returns the VMs that a row or a record of their users names. */
  readonly named: (db: DirectoryDb) => ReadonlySet<string>
  readonly judge: (db: DirectoryDb, row: Row) => HeldState
  /** Called for each check, after wakes, sweeps and alarms. */
  readonly look: () => void
  readonly onUnusableImage: (reason: string) => void
  readonly onLost: (failure: { reason: string; failures: number; retryMs: number }) => void
  /** Called when the row has been deleted; the VM is dismissed next. */
  readonly onDiscard: (row: Row, reason: string) => void
  readonly surplusReason: string
  readonly shapeReason: string
}

export type HeldVm<Row> = { readonly row: Row; readonly rank: number }

const worker = 'held'
const sweepMs = 5_000
const backOffRange = { minMs: 1_000, maxMs: 300_000 }

export class HeldVms<Row extends HeldRow> {
  readonly backOff: BackOff
  readonly image: Template<string>
  readonly #host: HeldHost
  readonly #policy: HeldPolicy<Row>
  readonly #workers: Workers

  constructor(host: HeldHost, policy: HeldPolicy<Row>) {
    const { clock, log } = host
    this.#host = host
    this.#policy = policy
    this.backOff = new BackOff(backOffRange, clock)
    this.image = new Template({
      read: host.imageDigest,
      onUnusable: (reason, error, isNew) => {
        if (isNew) log.error(`the image of ${policy.noun} cannot be read`, { error })
        policy.onUnusableImage(reason)
      },
    })
    this.#workers = createWorkers({
      clock,
      work: async () => policy.look(),
      onFailure: ({ error, retryMs }) => log.error(`${policy.noun} could not be looked after`, { retryMs, error }),
    })
  }

  /** `onSweep` runs before the check of each sweep. `isConcerned` reports whether a change of this VM needs a check. */
  start(isConcerned: (vmId: string) => boolean, onSweep: () => void = () => {}): void {
    this.#host.engine.onChange(vmId => {
      if (isConcerned(vmId)) this.wake()
    })
    this.#workers.sweep(sweepMs, () => {
      onSweep()
      this.wake()
    })
  }

  stop(): Promise<void> {
    return this.#workers.stop()
  }

  wake(): void {
    this.#workers.wake(worker)
  }

  /** Wakes after `ms`, unless something wakes earlier. */
  alarm(ms: number): void {
    this.#workers.alarm(worker, ms)
  }

  /** Yields the VMs that can be taken, of any image and shape, oldest first; each is judged when it is requested. */
  *held(db: DirectoryDb, rows: readonly Row[] = this.#policy.list(db)): Generator<HeldVm<Row>> {
    for (const row of rows) {
      const state = this.#policy.judge(db, row)
      if (state.kind === 'held') yield { row, rank: state.rank }
    }
  }

  /** Returns the VM that has progressed furthest, of the current image and shape; null if there is none. */
  best(db: DirectoryDb): HeldVm<Row> | null {
    const rows = this.#policy.list(db).filter(row => row.shape === this.#host.shape)
    const imageDigest = rows.length === 0 ? null : this.image.read()
    if (imageDigest === null) return null
    const present = rows.filter(row => row.imageDigest === imageDigest)
    return furthest(this.held(db, present))
  }

  /** Takes the best VM in the transaction of its taker, so that a transaction that is rolled back takes nothing. */
  take(tx: DirectoryDb): HeldVm<Row> | null {
    const held = this.best(tx)
    if (held !== null) assert(this.#policy.remove(tx, held.row.vmId), 'an immediate transaction sees no other writer')
    return held
  }

  /** Builds the row of one more VM, which the caller inserts and then passes to `define`. */
  newRow(imageDigest: string): NewRow {
    const { store, clock, random, shape } = this.#host
    return { vmId: newUuid(random), hostId: store.hostId, imageDigest, shape, nowMs: clock.nowMs() }
  }

  define({ vmId }: HeldRow): void {
    this.#host.engine.define(vmId, this.#host.vmSpec)
  }

  /**
   * Dismisses VMs that cannot be taken and surplus ones; returns the rest, oldest first. `imageDigest`: null if
   * unknown.
   */
  drain(imageDigest: string | null): HeldVm<Row>[] {
    const { store, shape } = this.#host
    const { wanted, judge, list, remove, surplusReason, shapeReason } = this.#policy
    const { db } = store.directory
    const kept: HeldVm<Row>[] = []
    let failure: string | null = null
    for (const row of list(db)) {
      const state = judge(db, row)
      if (state.kind === 'reserved') continue
      if (state.kind === 'taken') remove(db, row.vmId)
      else if (state.kind !== 'held') {
        if (state.kind === 'lost') failure = state.reason
        this.#discard(row, state.reason)
      } else if (imageDigest !== null && row.imageDigest !== imageDigest) this.#discard(row, 'the image has changed')
      else if (wanted > 0 && row.shape !== shape) this.#discard(row, shapeReason)
      else kept.push({ row, rank: state.rank })
    }
    if (failure !== null) {
      const retryMs = this.backOff.failed()
      this.#policy.onLost({ reason: failure, failures: this.backOff.failures, retryMs })
    }
    const over = new Set(surplus(kept, wanted))
    for (const { row } of over) this.#discard(row, surplusReason)
    return kept.filter(held => !over.has(held))
  }

  /** Returns VMs of this image that no record names. */
  unnamed(): Vm[] {
    const { store, vmSpec } = this.#host
    const named = this.#policy.named(store.directory.db)
    return unnamedVms(store.ledger.db, { hostId: store.hostId, image: vmSpec.image, named })
  }

  /** Deletes the row first: after a crash in between, its VM is unnamed and is dismissed at the next check. */
  #discard(row: Row, reason: string): void {
    if (!this.#policy.remove(this.#host.store.directory.db, row.vmId)) return
    this.#policy.onDiscard(row, reason)
    this.#host.engine.dismiss(row.vmId)
  }
}
