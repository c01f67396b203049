// Build VMs without a build: warm ones, which have no owner, and reserved ones. Effects: the store, the VM engine.

import { assert } from '../base/assert.ts'
import type { DirectoryDb } from '../store/db.ts'
import {
  buildByVm,
  countBuilds,
  countReserved,
  insertBuildVm,
  listBuildVms,
  namedBuildVms,
  removeBuildVm,
  reserveBuildVm,
  VM_STATES,
} from '../store/directory/build.query.ts'
import type { BuildVm } from '../store/directory/build.table.ts'
import type { Admission } from '../vm/admission.plan.ts'
import type { VmView } from '../vm/engine.ts'
import type { HeldState } from '../vm/held/held.plan.ts'
import { type HeldHost, HeldVms } from '../vm/held/held-vms.ts'
import type { BuildsSettings } from './types.ts'

export type BuildVmsDeps = HeldHost & {
  /** Number of VMs to keep warm. */
  readonly warm: number
  readonly settings: Pick<BuildsSettings, 'concurrentMax'>
}

export type BuildVmsStatus = {
  readonly wanted: number
  readonly warm: number
  readonly booting: number
  readonly reserved: number
  /** Missing resource of the host, or the image's problem; null if no problem is known. */
  readonly lacking: string | null
}

export class BuildVms {
  readonly #deps: BuildVmsDeps
  readonly #held: HeldVms<BuildVm>
  /** Reserved VMs whose build is being added to the directory. */
  readonly #promised = new Set<string>()
  #lacking: string | null = null

  constructor(deps: BuildVmsDeps) {
    this.#deps = deps
    const { store, warm, log } = deps
    this.#held = new HeldVms(deps, {
      noun: 'build VMs',
      wanted: warm,
      list: db => listBuildVms(db, store.hostId),
      remove: removeBuildVm,
      named: db => namedBuildVms(db, store.hostId),
      judge: (db, row) => this.#judge(db, row),
      look: () => this.#look(),
      onUnusableImage: reason => {
        this.#lacking = reason
      },
      onLost: failure => log.warn('a warm build VM was lost', failure),
      onDiscard: ({ vmId, kind }, reason) =>
        log.info('a build VM without a build is dismissed', { vm: vmId, kind, reason }),
      surplusReason: `${warm} are kept warm`,
      shapeReason: 'the configuration of build VMs has changed',
    })
  }

  /** Takes the best warm VM in the caller's transaction. Null if none has the current image and configuration. */
  take(tx: DirectoryDb): string | null {
    return this.#held.take(tx)?.row.vmId ?? null
  }

  /** Reports whether `take` would find a VM. */
  hasWarm(db: DirectoryDb): boolean {
    return this.#held.best(db) !== null
  }

  /** Keeps a reserved VM beyond its expiry, until the returned function is called. */
  hold(vmId: string): () => void {
    this.#promised.add(vmId)
    return () => this.#promised.delete(vmId)
  }

  /** Reserves a warm VM, or a new one if the host has room. Writes its row in this transaction. */
  reserve(
    tx: DirectoryDb,
    owner: { organizationId: string | null; expiresAtMs: number },
  ): { readonly vmId: string; readonly start: () => void } | null {
    const warm = this.#held.best(tx)
    if (warm !== null) {
      const { vmId } = warm.row
      assert(reserveBuildVm(tx, { vmId, ...owner }), 'an immediate transaction sees no other writer')
      return { vmId, start: () => this.wake() }
    }
    const imageDigest = this.#held.image.read()
    if (imageDigest === null || this.room().kind === 'full') return null
    const row = this.#held.newRow(imageDigest)
    insertBuildVm(tx, { ...row, kind: 'reserved', ...owner })
    return {
      vmId: row.vmId,
      start: () => {
        this.#held.define(row)
        this.wake()
      },
    }
  }

  /** Reports whether there is room for one more VM. Warm VMs that are not needed count as room. */
  room(): Admission {
    const verdict = this.#deps.room()
    this.#lacking = verdict.kind === 'full' ? verdict.lacking : null
    return verdict
  }

  wake(): void {
    this.#held.wake()
  }

  start(): void {
    this.#held.start(() => true)
  }

  stop(): Promise<void> {
    return this.#held.stop()
  }

  status(): BuildVmsStatus {
    const { store, warm: wanted } = this.#deps
    const { db } = store.directory
    const held = [...this.#held.held(db)]
    const warm = held.filter(({ rank }) => rank === 0).length
    const reserved = countReserved(db, { hostId: store.hostId })
    return { wanted, warm, booting: held.length - warm, reserved, lacking: this.#lacking }
  }

  #judge(db: DirectoryDb, row: BuildVm): HeldState {
    const { engine, clock } = this.#deps
    if (this.#promised.has(row.vmId)) return { kind: 'reserved' }
    if (buildByVm(db, row.vmId) !== null) return { kind: 'taken' }
    const vm = engine.view(row.vmId)
    const failure = failureOf(vm)
    if (row.kind === 'reserved') {
      if (row.expiresAtMs !== null && row.expiresAtMs <= clock.nowMs())
        return { kind: 'unwanted', reason: 'no build came for it in time' }
      return failure === null ? { kind: 'reserved' } : { kind: 'unwanted', reason: failure }
    }
    if (failure !== null) return { kind: 'lost', reason: failure }
    return { kind: 'held', rank: vm?.state === 'running' && vm.guest !== null ? 0 : 1 }
  }

  /** Runs one turn: drains, dismisses orphans, starts one missing VM, sets the alarm for the next expiry. */
  #look(): void {
    const { store, clock, warm } = this.#deps
    const imageDigest = warm === 0 ? null : this.#held.image.read()
    const kept = this.#held.drain(imageDigest)
    this.#dismissOrphans()
    if (kept.some(({ rank }) => rank === 0)) this.#held.backOff.reset()
    if (kept.length < warm && imageDigest !== null) this.#refill(imageDigest, kept.length)
    const nextExpiryMs = listBuildVms(store.directory.db, store.hostId)
      .flatMap(({ expiresAtMs }) => expiresAtMs ?? [])
      .reduce((least, atMs) => Math.min(least, atMs), Number.POSITIVE_INFINITY)
    if (Number.isFinite(nextExpiryMs)) this.#held.alarm(Math.max(1, nextExpiryMs - clock.nowMs()))
  }

  #refill(imageDigest: string, keptCount: number): void {
    const { store, settings } = this.#deps
    const waitMs = this.#held.backOff.waitMs()
    if (waitMs > 0) {
      this.#held.alarm(waitMs)
      return
    }
    const { db } = store.directory
    const { hostId } = store
    const busy = countBuilds(db, { hostId, states: VM_STATES }) + countReserved(db, { hostId })
    if (busy + keptCount >= settings.concurrentMax || this.room().kind !== 'admit') return
    const row = this.#held.newRow(imageDigest)
    insertBuildVm(db, { ...row, kind: 'warm', organizationId: null, expiresAtMs: null })
    this.#held.define(row)
    this.wake()
  }

  /**
   * Dismisses build VMs without a record: the record was lost, or the daemon was killed. They contain no client's work.
   */
  #dismissOrphans(): void {
    const { engine, log } = this.#deps
    for (const vm of this.#held.unnamed()) {
      log.warn('a build VM that no record names is dismissed', { vm: vm.id, state: vm.state })
      engine.dismiss(vm.id)
    }
  }
}

/** Returns why a VM failed; null if no failure is known. One that the engine lacks is about to be defined, or lost. */
function failureOf(vm: VmView | null): string | null {
  if (vm === null) return 'it was never created'
  if (vm.state === 'failed' || vm.state === 'stopping' || vm.state === 'gone') {
    return `${vm.failureCode ?? vm.state}: ${vm.failureMessage ?? 'it no longer exists'}`
  }
  return null
}
