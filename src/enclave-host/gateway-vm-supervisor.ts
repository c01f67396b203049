// Keeps one gateway VM serving and replaces it without a gap. Effects: the store, the VM engine, the firewall.
//
// One worker checks the whole state each time: rows, VMs, their status. A row is written before its VM is defined, a
// move is a compare-and-set, and the route follows from the rows, so a daemon that was killed anywhere continues from
// there.

import { iso } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import { newUuid } from '../base/ids.ts'
import type { Runtime } from '../base/runtime.ts'
import { AgeTracker } from '../base/work/age-tracker.ts'
import { BackOff } from '../base/work/back-off-state.ts'
import type { ClockGuard } from '../base/work/clock-guard.ts'
import { createWorkers, type Workers } from '../base/work/workers.ts'
import type { EnclaveStatus } from '../contract/vm/enclave-responses.ts'
import type { LedgerStore } from '../store/db.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import {
  insertGatewayVm,
  listGatewayVms,
  listGoneGatewayVms,
  moveGatewayVm,
  purgeGatewayVms,
  setReceiptKey,
} from '../store/ledger/gateway-vm.query.ts'
import type { GatewayVm, GatewayVmState } from '../store/ledger/gateway-vm.table.ts'
import type { VmSpec } from '../vm/engine.ts'
import { Template } from '../vm/held/template.ts'
import type { Addresses } from './addresses.ts'
import { unnamedGatewayVms } from './leaks.ts'
import type { GatewayVmSession } from './session.ts'
import type { BudgetPart, BudgetScope, GatewayVmEngine } from './types.ts'
import type { UnverifiedGatewayVm, VerifiedGatewayVm } from './verify.ts'

export type GatewayVmSupervisorDeps = Runtime & {
  readonly store: LedgerStore
  readonly hostId: string
  readonly engine: GatewayVmEngine
  /** Launch of a gateway VM that starts now. Fault image.invalid. */
  readonly wanted: () => WantedGatewayVm
  readonly newSession: (vmId: string, onChange: () => void) => GatewayVmSession
  readonly addresses: Pick<Addresses, 'reached' | 'onChange' | 'isKnown'>
  /** `claimed`: what the VM reports of itself, returned if there is nothing to verify. Fault attest.unavailable. */
  readonly verify: (vmId: string, claimed: UnverifiedGatewayVm) => Promise<VerifiedGatewayVm>
  /** Called before traffic is routed to a VM; throwing cancels the switch. */
  readonly beforeServing: (vmId: string, verified: VerifiedGatewayVm) => void
  /** How long a listening VM may have a problem before it serves anyway, if no other VM does. */
  readonly patienceMs: number
  /** Longest time from a VM's row until it serves: after that it is given up, and another one is tried. */
  readonly startMs: number
  /** Longest time that the requests of a VM which was replaced may take. */
  readonly drainMs: number
  readonly guard: Pick<ClockGuard, 'mayDelete'>
  /** Whether this host must serve no clients, because its fleet has removed it. Default: it may. */
  readonly isShutOut?: () => boolean
}

export type WantedGatewayVm = {
  readonly spec: VmSpec & { readonly workload: string }
  /** Digest of all that it is launched from. */
  readonly shape: string
}

export type GatewayVmView = {
  readonly vmId: string
  readonly state: GatewayVmState
  readonly address: string | null
  readonly status: EnclaveStatus | null
  readonly sinceMs: number
  /** Whether it was launched from the current configuration. */
  readonly isWanted: boolean
  readonly booked: number
  /** Rows of its usage wait since then, and none is booked; null if none waits. */
  readonly usageWaitingSinceMs: number | null
  /** Why it does not do all that it should, or why its usage is not booked. */
  readonly problem: string | null
  readonly reason: string | null
}

const worker = 'gateway'
/** A previous daemon wrote this row; the VM may no longer exist. */
const noStatusYet = 'it has not reported to this daemon yet'
const retry = { minMs: 500, maxMs: 30_000 }
const sweepMs = 2_000
const backOffRange = { minMs: 1_000, maxMs: 300_000 }
const goneKeptMs = 7 * 24 * 3_600_000
/** No share: limits one response to the operator. */
const goneShownMax = 10

export class GatewayVmSupervisor {
  readonly #deps: GatewayVmSupervisorDeps
  readonly #workers: Workers
  readonly #sessions = new Map<string, GatewayVmSession>()
  readonly #drainingAges: AgeTracker
  readonly #startingAges: AgeTracker
  readonly #backOff: BackOff
  readonly #template: Template<WantedGatewayVm>
  #problem: string | null = null
  /** Result of the last check. */
  #wanted: WantedGatewayVm | null = null
  /** VMs that the operator has marked for replacement. */
  readonly #outdated = new Set<string>()
  /** The route that the firewall has, as text. */
  #routed = ''
  /** When a VM first listened, monotonic. */
  readonly #listeningSinceMs = new Map<string, number>()

  constructor(deps: GatewayVmSupervisorDeps) {
    this.#deps = deps
    this.#drainingAges = new AgeTracker(deps.clock)
    this.#startingAges = new AgeTracker(deps.clock)
    this.#backOff = new BackOff(backOffRange, deps.clock)
    this.#template = new Template({
      read: deps.wanted,
      onUnusable: (_, error, isNew) => {
        if (isNew) deps.log.error('no gateway VM can be started', { error })
      },
    })
    this.#workers = createWorkers({
      clock: deps.clock,
      work: () => this.#reconcile(),
      retry,
      onFailure: ({ error, retryMs }) => {
        this.#problem = messageOf(error)
        deps.log.error('the gateway VM could not be checked; retrying', { retryMs, error })
      },
    })
  }

  start(): void {
    const { engine, addresses } = this.#deps
    engine.onChange(vmId => {
      if (this.#sessions.has(vmId)) this.#wake()
    })
    addresses.onChange(() => {
      for (const session of this.#sessions.values()) session.pushAddresses()
      this.#wake()
    })
    this.#workers.sweep(sweepMs, () => this.#wake())
  }

  async stop(): Promise<void> {
    await this.#workers.stop()
    await Promise.all([...this.#sessions.values()].map(session => session.stop()))
  }

  pushCertificates(): void {
    for (const session of this.#sessions.values()) session.pushCertificates()
  }

  /** Sends changed keys or limits. Resolves once every VM has them or cannot be reached. Never rejects. */
  async pushControl(): Promise<void> {
    await Promise.all([...this.#sessions.values()].map(session => session.pushControl()))
  }

  /** A new VM replaces the old one as soon as it is verified. Returns false if there is none to replace. */
  replace(): boolean {
    const { store, hostId, clock } = this.#deps
    const rows = listGatewayVms(store.db, hostId).filter(row => row.state === 'serving')
    for (const row of rows) this.#outdated.add(row.vmId)
    if (rows.length > 0) this.#event('gateway.update_asked', { vm: rows.map(row => row.vmId), at: iso(clock.nowMs()) })
    this.#wake()
    return rows.length > 0
  }

  /** Living gateway VMs first, then the most recent ended ones. */
  view(): { readonly gatewayVms: readonly GatewayVmView[]; readonly problem: string | null } {
    const { store, hostId } = this.#deps
    const rows = [...listGatewayVms(store.db, hostId), ...listGoneGatewayVms(store.db, hostId, goneShownMax)]
    return { gatewayVms: rows.map(row => this.#viewOf(row)), problem: this.#template.problem ?? this.#problem }
  }

  /** The VM that serves, or that is to be the first to. */
  session(): GatewayVmSession | null {
    const rows = listGatewayVms(this.#deps.store.db, this.#deps.hostId)
    const row = rows.find(row => row.state === 'serving') ?? rows.find(row => row.state === 'starting')
    return row === undefined ? null : (this.#sessions.get(row.vmId) ?? null)
  }

  /**
   * Returns the part of a budget that the gateway keeps in addition to recorded usage, after it has dropped its
   * share. Null if that is unknown, or a second VM has not reported its part. Never rejects.
   */
  async lowerBudget(scope: BudgetScope): Promise<BudgetPart | null> {
    const only = () => {
      const rows = listGatewayVms(this.#deps.store.db, this.#deps.hostId)
      return rows.length === 1 && rows[0]?.state === 'serving' ? rows[0].vmId : null
    }
    const vmId = only()
    const kept = vmId === null ? null : await this.#sessions.get(vmId)?.lowerBudget(scope)
    return only() === vmId ? (kept ?? null) : null
  }

  #viewOf(row: GatewayVm): GatewayVmView {
    const { engine } = this.#deps
    const session = this.#sessions.get(row.vmId)
    const status = session?.status ?? null
    return {
      vmId: row.vmId,
      state: row.state,
      address: row.state === 'gone' ? null : (engine.view(row.vmId)?.address ?? null),
      status,
      sinceMs: row.changedAtMs,
      isWanted: this.#isWanted(row),
      booked: row.booked,
      usageWaitingSinceMs: session?.usageWaitingSinceMs ?? null,
      problem:
        status === null && row.state === 'serving' ? noStatusYet : (status?.problem ?? session?.usageProblem ?? null),
      reason: row.reason,
    }
  }

  #isWanted(row: GatewayVm): boolean {
    return row.shape === this.#wanted?.shape && !this.#outdated.has(row.vmId)
  }

  #wake(): void {
    this.#workers.wake(worker)
  }

  async #reconcile(): Promise<void> {
    const { store, hostId, clock, guard } = this.#deps
    this.#wanted = this.#template.read()
    const rows = listGatewayVms(store.db, hostId)
    for (const ages of [this.#drainingAges, this.#startingAges]) ages.keepOnly(rows.map(({ vmId }) => vmId))
    for (const row of rows) await this.#reconcileVm(row)
    this.#dismissUnnamed()
    // Serving VMs stay while the wanted gateway is unknown.
    if (this.#wanted !== null) {
      await this.#promote()
      this.#startIfNeeded(this.#wanted)
    }
    await this.#route()
    if (guard.mayDelete()) purgeGatewayVms(store.db, clock.nowMs() - goneKeptMs)
  }

  /**
   * Reconciles one VM: ends its row if the machine has ended, feeds it while it runs, dismisses it once it has
   * drained.
   */
  async #reconcileVm(row: GatewayVm): Promise<void> {
    const { engine } = this.#deps
    const vm = engine.view(row.vmId)
    // The daemon was killed after writing the row and before defining the VM.
    if (vm === null && row.state === 'starting' && !this.#sessions.has(row.vmId)) return this.#define(row)
    if (vm === null || vm.state === 'failed' || vm.state === 'stopping' || vm.state === 'gone') {
      return this.#end(row, vm?.failureMessage ?? 'its VM no longer exists')
    }
    const session = this.#sessionOf(row)
    if (row.state !== 'draining') return
    const { status } = session
    if (status !== null && status.state !== 'draining') session.drain()
    const isIdle = status !== null && status.running === 0 && status.usageWaiting === 0
    const isLate = this.#drainingAges.ageMs(row.vmId, row.changedAtMs) >= this.#deps.drainMs
    if ((isIdle && status.state === 'draining') || isLate) await this.#end(row, 'it was replaced')
  }

  #sessionOf(row: GatewayVm): GatewayVmSession {
    const known = this.#sessions.get(row.vmId)
    if (known !== undefined) return known
    const session = this.#deps.newSession(row.vmId, () => this.#wake())
    this.#sessions.set(row.vmId, session)
    session.start()
    return session
  }

  /** The newest wanted VM that starts serves once it is verified. */
  async #promote(): Promise<void> {
    const { store, hostId, engine, verify, addresses, log, clock } = this.#deps
    if (!addresses.isKnown) return
    const rows = listGatewayVms(store.db, hostId)
    const serving = rows.find(row => row.state === 'serving')
    for (const row of rows.filter(row => row.state === 'starting').toReversed()) {
      if (!this.#isWanted(row)) {
        await this.#end(row, 'the configuration or the image has changed')
        continue
      }
      const { problem = null, receiptKey = '' } = this.#sessions.get(row.vmId)?.status ?? {}
      const isOver = this.#startingAges.ageMs(row.vmId, row.createdAtMs) >= this.#deps.startMs
      if (!this.#isReady(row, serving !== undefined)) {
        if (isOver) await this.#end(row, `it was not ready in time: ${problem ?? 'no status received'}`)
        continue
      }
      let verified: VerifiedGatewayVm
      try {
        verified = await verify(row.vmId, { receiptKey })
      } catch (error) {
        this.#problem = messageOf(error)
        // Without its worker there is no attestation; its other models are served anyway if no other VM serves.
        const isWorkerless = problem !== null && serving === undefined
        if (!isWorkerless) {
          log.error('the gateway VM cannot be verified and gets no traffic', { vm: row.vmId, error })
          if (isOver) await this.#end(row, messageOf(error))
          continue
        }
        log.error('the gateway VM serves without attestation, because its worker does not run', {
          vm: row.vmId,
          problem,
        })
        verified = { receiptKey }
      }
      this.#deps.beforeServing(row.vmId, verified)
      engine.open(row.vmId)
      // Route first, then record `serving`: clients that see the status can connect. After a crash here the route
      // falls back to the previous VM.
      await this.#routeTo(row.vmId)
      const nowMs = clock.nowMs()
      store.transact(tx => {
        setReceiptKey(tx, row.vmId, verified.receiptKey)
        if (serving !== undefined) moveGatewayVm(tx, { vmId: serving.vmId, from: ['serving'], to: 'draining', nowMs })
        moveGatewayVm(tx, { vmId: row.vmId, from: ['starting'], to: 'serving', nowMs })
      })
      this.#backOff.reset()
      this.#problem = null
      this.#event('gateway.serving', { vm: row.vmId, replaced: serving?.vmId ?? null })
      log.info('a gateway VM serves', { vm: row.vmId, replaced: serving?.vmId ?? null })
      this.#wake()
      return
    }
  }

  /** A replacement must be without a problem. The first VM may serve without its worker: it has other models. */
  #isReady({ vmId }: GatewayVm, isReplacing: boolean): boolean {
    const { clock } = this.#deps
    const status = this.#sessions.get(vmId)?.status
    if (status?.state !== 'ready' || status.revision === 0) return false
    if (status.problem === null) return true
    if (isReplacing) return false
    const sinceMs = this.#listeningSinceMs.get(vmId) ?? clock.monotonicMs()
    this.#listeningSinceMs.set(vmId, sinceMs)
    return clock.monotonicMs() - sinceMs >= this.#deps.patienceMs
  }

  /** Starts a VM where none that is wanted serves or starts. */
  #startIfNeeded({ shape, spec }: WantedGatewayVm): void {
    const { store, hostId, clock, random, log } = this.#deps
    const rows = listGatewayVms(store.db, hostId)
    const isThere = rows.some(row => (row.state === 'serving' || row.state === 'starting') && this.#isWanted(row))
    if (isThere || this.#backOff.waitMs() > 0) return
    if ((spec.gpus ?? []).length > 0 && !this.#areGpusFree(rows)) return
    const vmId = newUuid(random)
    insertGatewayVm(store.db, { vmId, hostId, shape, nowMs: clock.nowMs() })
    log.info('a gateway VM is started', { vm: vmId, serving: rows.find(row => row.state === 'serving')?.vmId ?? null })
    const row = listGatewayVms(store.db, hostId).find(started => started.vmId === vmId)
    if (row !== undefined) this.#define(row)
  }

  /**
   * A GPU belongs to one VM at a time, so the next VM starts only after the previous one has drained and its QEMU has
   * ended. Until then no VM serves.
   */
  #areGpusFree(rows: readonly GatewayVm[]): boolean {
    const { store, hostId, engine, clock, log } = this.#deps
    const nowMs = clock.nowMs()
    for (const row of rows.filter(({ state }) => state === 'serving')) {
      moveGatewayVm(store.db, { vmId: row.vmId, from: ['serving'], to: 'draining', nowMs })
      log.warn('the gateway VM drains before its successor starts, because its successor needs the GPUs', {
        vm: row.vmId,
      })
    }
    const ended = listGoneGatewayVms(store.db, hostId, goneShownMax).map(({ vmId }) => engine.view(vmId))
    return rows.length === 0 && ended.every(vm => vm === null || vm.state === 'gone')
  }

  #define(row: GatewayVm): void {
    // Killed before it was defined, and wanted otherwise since then: `promote` ends it.
    if (this.#wanted?.shape !== row.shape) return
    this.#deps.engine.define(row.vmId, this.#wanted.spec)
    this.#wake()
  }

  async #end(row: GatewayVm, reason: string): Promise<void> {
    const { store, engine, clock, log } = this.#deps
    const nowMs = clock.nowMs()
    if (
      !moveGatewayVm(store.db, { vmId: row.vmId, from: ['starting', 'serving', 'draining'], to: 'gone', reason, nowMs })
    )
      return
    this.#outdated.delete(row.vmId)
    this.#listeningSinceMs.delete(row.vmId)
    if (row.state !== 'draining') {
      this.#backOff.failed({ isDelayed: row.state !== 'serving' })
      this.#problem = reason
      log.error('a gateway VM is removed', { vm: row.vmId, state: row.state, reason })
    }
    const usageLost = this.#sessions.get(row.vmId)?.status?.usageWaiting ?? 0
    if (usageLost > 0) log.error('usage of a gateway VM was not recorded before its end', { vm: row.vmId, usageLost })
    this.#event('gateway.gone', { vm: row.vmId, state: row.state, reason, usageLost })
    const session = this.#sessions.get(row.vmId)
    await session?.stop()
    this.#sessions.delete(row.vmId)
    engine.dismiss(row.vmId)
    void session?.endShares()
    this.#wake()
  }

  /** The row is closed before its VM; a crash in between leaves an orphaned VM, which is dismissed here. */
  #dismissUnnamed(): void {
    const { store, hostId, engine, log } = this.#deps
    for (const { id, state } of unnamedGatewayVms(store.db, hostId)) {
      log.warn('a gateway VM that no row names is dismissed', { vm: id, state })
      engine.dismiss(id)
    }
  }

  /** The firewall follows the rows. */
  async #route(): Promise<void> {
    const { store, hostId, addresses } = this.#deps
    // Until then the firewall has the route of the daemon before this one.
    if (!addresses.isKnown) return
    await this.#routeTo(listGatewayVms(store.db, hostId).find(row => row.state === 'serving')?.vmId ?? null)
  }

  async #routeTo(serving: string | null): Promise<void> {
    const { engine, addresses, isShutOut } = this.#deps
    const route = { serving: isShutOut?.() === true ? null : serving, upstreams: addresses.reached() }
    const text = JSON.stringify(route)
    if (text === this.#routed) return
    await engine.route(route)
    this.#routed = text
  }

  #event(kind: string, detail: Record<string, unknown>): void {
    const { store, clock, log } = this.#deps
    noteEvent(store.db, log, { nowMs: clock.nowMs(), kind, subject: '', detail })
  }
}
