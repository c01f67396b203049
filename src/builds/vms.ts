// Build VMs that no build has taken: warm ones, which are nobody's, and reserved ones. Effects: the store, the VM engine.
//
// As with instances, a VM stands here exactly as long as it has a row: the row is written before the VM is defined and goes in one statement,
// and whoever has removed it decides. A build takes the VM; everything else dismisses it.

import { assert } from '../base/assert.ts'
import { type Clock, pause } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import { newUuid, type RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { createWorkers, type Workers } from '../base/work/workers.ts'
import type { DirectoryDb, Store } from '../store/db.ts'
import {
  countBuilds,
  insertBuildVm,
  listBuildVms,
  namedBuildVms,
  removeBuildVm,
  reserveBuildVm,
  VM_STATES,
} from '../store/directory/build.query.ts'
import type { BuildVm } from '../store/directory/build.table.ts'
import { listVms } from '../store/ledger/vm.query.ts'
import type { Admission } from '../vm/admission.plan.ts'
import type { BuildEngine } from '../vm/build-engine.ts'
import type { VmSpec, VmView } from '../vm/engine.ts'

export type BuildVmsDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger' | 'hostId'>
  readonly engine: Pick<BuildEngine, 'define' | 'dismiss' | 'view' | 'onChange'>
  readonly vmSpec: VmSpec
  /** What such a VM is made of besides its image; VMs of another shape are not used. */
  readonly shape: string
  /** How many are kept warm. */
  readonly warm: number
  readonly concurrentMax: number
  /** Digest of the image that a VM would boot now. Fault: image.invalid. */
  readonly imageDigest: () => string
  /** Whether one more VM finds room and a turn at once. */
  readonly room: () => Admission
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
}

export type BuildVmsStatus = {
  readonly wanted: number
  readonly warm: number
  readonly booting: number
  readonly reserved: number
  /** What the host lacks, or why the image cannot be used; null: nothing is known to be wrong. */
  readonly lacking: string | null
}

const worker = 'vms'
const retryMinMs = 200
const retryMaxMs = 10_000
const sweepMs = 5_000
const backOffMinMs = 1_000
const backOffMaxMs = 300_000

export class BuildVms {
  readonly #deps: BuildVmsDeps
  readonly #stopping = new AbortController()
  readonly #workers: Workers
  #failuresInRow = 0
  #nextAttemptMs = Number.NEGATIVE_INFINITY
  #lacking: string | null = null

  constructor(deps: BuildVmsDeps) {
    this.#deps = deps
    this.#workers = createWorkers({
      clock: deps.clock,
      work: async () => this.#look(),
      retryMinMs,
      retryMaxMs,
      onFailure: ({ error, retryMs }) => deps.log.error('build VMs could not be looked after', { retryMs, error }),
    })
  }

  /** Takes the warm VM that is furthest along, in the transaction of its taker. Null: there is none of the present image and shape. */
  take(tx: DirectoryDb): string | null {
    const vm = this.#best(tx)
    if (vm === null) return null
    assert(removeBuildVm(tx, vm.vmId), 'an immediate transaction sees no other writer')
    return vm.vmId
  }

  /** A warm VM, or a new one where the host has room; its row is written in this transaction. */
  reserve(
    tx: DirectoryDb,
    of: { organizationId: string | null; expiresAtMs: number },
  ): { readonly vmId: string; readonly start: () => void } | null {
    const warm = this.#best(tx)
    if (warm !== null) {
      assert(reserveBuildVm(tx, { vmId: warm.vmId, ...of }), 'an immediate transaction sees no other writer')
      return { vmId: warm.vmId, start: () => this.wake() }
    }
    const { store, engine, clock, random, vmSpec } = this.#deps
    const imageDigest = this.#imageDigest()
    if (imageDigest === null || this.room().kind === 'full') return null
    const vmId = newUuid(random)
    const row = { vmId, hostId: store.hostId, imageDigest, shape: this.#deps.shape, nowMs: clock.nowMs() }
    insertBuildVm(tx, { ...row, kind: 'reserved', ...of })
    return {
      vmId,
      start: () => {
        engine.define(vmId, vmSpec)
        this.wake()
      },
    }
  }

  /** Whether one more VM finds room now; what is kept warm in vain counts as room. */
  room(): Admission {
    const verdict = this.#deps.room()
    this.#lacking = verdict.kind === 'full' ? verdict.lacking : null
    return verdict
  }

  wake(): void {
    this.#workers.wake(worker)
  }

  start(): void {
    this.#deps.engine.onChange(() => this.wake())
    this.wake()
    void this.#sweep()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#workers.stop()
  }

  status(): BuildVmsStatus {
    const { store, engine, warm } = this.#deps
    const rows = listBuildVms(store.directory.db, store.hostId)
    const running = (row: BuildVm) => isUp(engine.view(row.vmId))
    return {
      wanted: warm,
      warm: rows.filter(row => row.kind === 'warm' && running(row)).length,
      booting: rows.filter(row => row.kind === 'warm' && !running(row)).length,
      reserved: rows.filter(row => row.kind === 'reserved').length,
      lacking: this.#lacking,
    }
  }

  async #sweep(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      await pause(this.#deps.clock, sweepMs, this.#stopping.signal)
      this.wake()
    }
  }

  /** Null: the image cannot be read now. */
  #imageDigest(): string | null {
    try {
      return this.#deps.imageDigest()
    } catch (error) {
      const reason = messageOf(error)
      if (this.#lacking !== reason) this.#deps.log.error('the image of build VMs cannot be read', { error })
      this.#lacking = reason
      return null
    }
  }

  #best(db: DirectoryDb): BuildVm | null {
    const { store, engine, shape } = this.#deps
    const rows = listBuildVms(db, store.hostId).filter(row => row.kind === 'warm' && row.shape === shape)
    const imageDigest = rows.length === 0 ? null : this.#imageDigest()
    const usable = rows.filter(row => row.imageDigest === imageDigest && failureOf(engine.view(row.vmId)) === null)
    return usable.find(row => isUp(engine.view(row.vmId))) ?? usable[0] ?? null
  }

  /** One turn: what is lost, over or too much goes; what is missing is asked for, one at a time. */
  #look(): void {
    const { store, clock, warm } = this.#deps
    const imageDigest = this.#deps.warm === 0 ? null : this.#imageDigest()
    const kept: BuildVm[] = []
    for (const row of listBuildVms(store.directory.db, store.hostId)) {
      const reason = this.#whyDiscard(row, imageDigest, kept.length)
      if (reason === null) {
        if (row.kind === 'warm') kept.push(row)
      } else this.#discard(row, reason)
    }
    this.#dismissOrphans()
    if (kept.some(row => isUp(this.#deps.engine.view(row.vmId)))) this.#failuresInRow = 0
    if (kept.length < warm && imageDigest !== null) this.#refill(imageDigest, kept.length)
    const nextExpiryMs = listBuildVms(store.directory.db, store.hostId)
      .flatMap(({ expiresAtMs }) => expiresAtMs ?? [])
      .reduce((least, atMs) => Math.min(least, atMs), Number.POSITIVE_INFINITY)
    if (Number.isFinite(nextExpiryMs)) this.#workers.alarm(worker, Math.max(1, nextExpiryMs - clock.nowMs()))
  }

  #whyDiscard(row: BuildVm, imageDigest: string | null, keptCount: number): string | null {
    const { engine, clock, warm, shape } = this.#deps
    const failure = failureOf(engine.view(row.vmId))
    if (row.kind === 'reserved') {
      if (row.expiresAtMs !== null && row.expiresAtMs <= clock.nowMs()) return 'no build came for it in time'
      return failure
    }
    if (failure !== null) this.#failed(failure)
    if (failure !== null) return failure
    if (keptCount >= warm) return `${warm} are kept warm`
    if (imageDigest !== null && row.imageDigest !== imageDigest) return 'the image has changed'
    return row.shape === shape ? null : 'the shape of build VMs has changed'
  }

  /** The row goes first: killed in between, its VM is an orphan of the next look. */
  #discard({ vmId, kind }: BuildVm, reason: string): void {
    const { store, engine, log } = this.#deps
    if (!removeBuildVm(store.directory.db, vmId)) return
    log.info('a build VM that no build has taken is dismissed', { vm: vmId, kind, reason })
    engine.dismiss(vmId)
  }

  #failed(reason: string): void {
    const { clock, log } = this.#deps
    const retryMs = Math.min(backOffMinMs * 2 ** Math.min(this.#failuresInRow, 30), backOffMaxMs)
    this.#failuresInRow += 1
    this.#nextAttemptMs = clock.monotonicMs() + retryMs
    log.warn('a warm build VM was lost', { reason, failures: this.#failuresInRow, retryMs })
  }

  #refill(imageDigest: string, keptCount: number): void {
    const { store, engine, clock, random, vmSpec, shape, concurrentMax } = this.#deps
    const waitMs = this.#nextAttemptMs - clock.monotonicMs()
    if (waitMs > 0) {
      this.#workers.alarm(worker, waitMs)
      return
    }
    const { db } = store.directory
    const busy = countBuilds(db, { hostId: store.hostId, states: VM_STATES }) + this.status().reserved
    if (busy + keptCount >= concurrentMax || this.room().kind !== 'admit') return
    const vmId = newUuid(random)
    const row = { vmId, hostId: store.hostId, imageDigest, shape, nowMs: clock.nowMs() }
    insertBuildVm(db, { ...row, kind: 'warm', organizationId: null, expiresAtMs: null })
    engine.define(vmId, vmSpec)
    this.wake()
  }

  /** Build VMs that no record names: of builds whose record is lost, or of a daemon that was killed. Nobody's work is in them. */
  #dismissOrphans(): void {
    const { store, engine, vmSpec, log } = this.#deps
    const named = namedBuildVms(store.directory.db, store.hostId)
    for (const vm of listVms(store.ledger.db, store.hostId)) {
      if (vm.image !== vmSpec.image || vm.desired === 'gone' || named.has(vm.id)) continue
      log.warn('a build VM that no record names is dismissed', { vm: vm.id, state: vm.state })
      engine.dismiss(vm.id)
    }
  }
}

function isUp(vm: VmView | null): boolean {
  return vm?.state === 'running' && vm.guest !== null
}

/** Null: it is well, as far as is known. A VM that the engine has not heard of is about to be defined, or lost. */
function failureOf(vm: VmView | null): string | null {
  if (vm === null) return 'it was never made'
  if (vm.state === 'failed' || vm.state === 'stopping' || vm.state === 'gone') {
    return `${vm.failureCode ?? vm.state}: ${vm.failureMessage ?? 'it is gone'}`
  }
  return null
}
