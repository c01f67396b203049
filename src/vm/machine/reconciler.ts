// Moves every VM towards its desired state. Effects: through the driver; state only by compare-and-set.
//
// Each VM has one worker, which changes wake. It checks the whole state each time (level-triggered), so a lost event
// costs time, never correctness. VMs wait for each other only for capacity and for their turn to boot.

import { present } from '../../base/assert.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { ClockGuard } from '../../base/work/clock-guard.ts'
import { createWorkers, type Workers } from '../../base/work/workers.ts'
import type { EgressCount, IdlePoll } from '../../contract/vm/agent.ts'
import type { IdleAnswer } from '../../contract/vm/agent-responses.ts'
import type { LedgerDb, LedgerStore } from '../../store/db.ts'
import { egressOf } from '../../store/ledger/egress.query.ts'
import { appendEvent } from '../../store/ledger/event.query.ts'
import { recordResource, resourceOf } from '../../store/ledger/resource.query.ts'
import { closeVm, dismissVm, insertVm, listVms, moveVm, openVm, vmById } from '../../store/ledger/vm.query.ts'
import type { Vm, VmState } from '../../store/ledger/vm.table.ts'
import type { Capacity } from '../admission.plan.ts'
import { type AddressSlot, type Pools, placeFor, type VmAddresses } from '../capacity.query.ts'
import type { HostLoss, VmEngine, VmSpec, VmView } from '../engine.ts'
import { VmBuilds } from '../evidence/build.driver.ts'
import { EvidenceTaker } from '../evidence/evidence.driver.ts'
import { GatewayVmRequests } from '../evidence/gateway-vm.driver.ts'
import { attached, type EvidenceSources } from '../evidence/report.driver.ts'
import { LaunchMismatch } from '../launch/launcher.driver.ts'
import { type GuestNetwork, networkOf } from '../network/guest-network.plan.ts'
import { closeLink, type Entry, linkOf, newEntry } from './entry.ts'
import { Pulse, type PulseDeps } from './pulse.ts'
import type { VmDriver } from './vm.driver.ts'
import {
  failureMessage,
  failureOf,
  knownFailure,
  LOSSES,
  next,
  SILENCES,
  VM_TABLE,
  type VmEvent,
  type VmWork,
} from './vm.machine.ts'

export type VmReconcilerDeps = {
  readonly ledger: LedgerStore
  readonly hostId: string
  readonly driver: Pick<VmDriver, Exclude<keyof VmDriver, 'pausedVms'>>
  readonly clock: Clock
  /** Prevents an untrusted wall clock from ending the rest of an address. */
  readonly guard: Pick<ClockGuard, 'certainMs'>
  readonly log: Logger
  readonly capacity: Capacity
  readonly pools: Pools
  /** Time before a released address may be reused. */
  readonly addressRestMs: number
  /** Network settings that all guests share. */
  readonly guestNetwork: GuestNetwork
  /** Returns the GiB for the disks of all VMs, from the file system's current state. */
  readonly diskGibMax: () => number
  readonly bootTimeoutMs: number
  readonly capacityWaitMs: number
  /** Why VMs that had booted before lost their QEMU; null if they may still run. */
  readonly hostLoss: HostLoss | null
  /** Reports whether the host is shutting down. VMs that end then are ended by the restart. */
  readonly isHostStopping: () => Promise<boolean>
  readonly probeSsh: PulseDeps['probeSsh']
  /** Certificates and platforms behind VMs' evidence. */
  readonly evidence: EvidenceSources
  /** The platform that the driver starts QEMU on. */
  readonly platform: NonNullable<Vm['platform']>
}

type Work = (vm: Vm, entry: Entry) => VmEvent | null | Promise<VmEvent | null>

type Change = { readonly from: VmState; readonly to: VmState; readonly event: VmEvent }

const networkTimeoutMs = 10_000
/** Minimum time to wait for room of VMs that are ending, however short the configured wait. */
const endingWaitMs = 15_000
/** Interval at which everything is checked, in case an event was lost. */
const sweepMs = 5_000

export class VmReconciler implements VmEngine {
  readonly #deps: VmReconcilerDeps
  readonly #entries = new Map<string, Entry>()
  readonly #listeners: ((vmId: string) => void)[] = []
  /** VMs lost with the host, and the time of their last egress sample before this boot; null if there is none. */
  readonly #lostWithHost = new Map<string, number | null>()
  readonly #workers: Workers
  readonly #evidence: EvidenceTaker
  /** Requests to build VMs. */
  readonly builds: VmBuilds
  /** Requests to gateway VMs. */
  readonly gatewayVms: GatewayVmRequests
  /** The implementation of each work of VM_TABLE. */
  readonly #works: Record<VmWork, Work> = {
    admit: (vm, entry) => this.#admit(vm, entry),
    build: (vm, entry) => this.#build(vm, entry),
    check_deadline: (_, entry) => (this.#bootLeftMs(entry) <= 0 ? 'deadline' : null),
    attach: (vm, entry) => this.#attach(vm, entry),
    resume: (vm, entry) => this.#deps.driver.resume(vm, linkOf(entry)),
    greet: (vm, entry) => this.#greet(vm, entry),
    bound_log: vm => {
      this.#deps.driver.boundLog(vm)
      return null
    },
    watch: (vm, entry) => this.#watch(vm, entry),
    open: (vm, entry) => this.#open(vm, entry),
    power_down: (vm, entry) => this.#powerDown(vm, entry),
    release: (vm, entry) => this.#release(vm, entry),
  }

  constructor(deps: VmReconcilerDeps) {
    this.#deps = deps
    const { evidence: sources } = deps
    const asking = { db: deps.ledger.db, sources, linkOf: (vmId: string) => this.#entries.get(vmId)?.link ?? null }
    this.#evidence = new EvidenceTaker({ ...asking, clock: deps.clock })
    this.builds = new VmBuilds(asking)
    this.gatewayVms = new GatewayVmRequests(asking)
    this.#workers = createWorkers({
      clock: deps.clock,
      work: vmId => this.#look(vmId),
      onFailure: ({ key, error, retryMs }) =>
        deps.log.warn('VM work failed; it will be tried again', { vm: key, retryMs, error }),
    })
  }

  define(vmId: string, spec: VmSpec): void {
    const { ledger, hostId, clock } = this.#deps
    insertVm(ledger.db, { ...spec, id: vmId, hostId, nowMs: clock.nowMs() })
    this.wake(vmId)
  }

  dismiss(vmId: string): void {
    dismissVm(this.#deps.ledger.db, vmId)
    this.wake(vmId)
  }

  /** Wakes the VM's worker. Never throws, never waits. */
  wake(vmId: string): void {
    this.#workers.wake(vmId)
  }

  view(vmId: string): VmView | null {
    const vm = vmById(this.#deps.ledger.db, vmId)
    if (vm === null) return null
    const { id, state, platform } = vm
    const guest = state === 'running' ? (this.#entries.get(vmId)?.link?.observe().hello ?? null) : null
    const failedAtMs = state === 'failed' ? vm.changedAtMs : null
    const failure = { failureCode: knownFailure(vm.failureCode), failureMessage: vm.failureMessage, failedAtMs }
    const opened = vm.openedAtMs !== null && vm.closedAtMs === null && (this.#entries.get(vmId)?.opened ?? false)
    const addresses = { address: this.#addressOf(vm, 'address'), addressV6: this.#addressOf(vm, 'address_v6') }
    return { id, state, platform, ...addresses, ...failure, guest, opened }
  }

  /** The row of a failed VM keeps its address for the operator, but another VM may have the address by now. */
  #addressOf({ id, state }: Vm, kind: 'address' | 'address_v6'): string | null {
    if (state === 'failed' || state === 'gone') return null
    return resourceOf(this.#deps.ledger.db, id, kind)?.name ?? null
  }

  async claim(...[vmId, sealed, timeoutMs]: Parameters<VmEngine['claim']>): ReturnType<VmEngine['claim']> {
    const link = this.#entries.get(vmId)?.link
    const vm = vmById(this.#deps.ledger.db, vmId)
    if (!link || vm === null) throw new Fault('channel.closed', `VM ${vmId} is not attached`)
    try {
      // A VM of the pool may be older than the current configuration; after the claim its network stays fixed.
      const network = networkOf(this.#deps.guestNetwork, vm)
      await link.channel.network(network, networkTimeoutMs)
      return { ...(await link.channel.claim(sealed, timeoutMs)), network }
    } catch (error) {
      // The agent may have restarted with new keys: request its hello before the next attempt.
      link.forget()
      this.wake(vmId)
      throw error
    }
  }

  readonly evidence: VmEngine['evidence'] = (...question) => this.#evidence.take(...question)

  readonly handReceipt: VmEngine['handReceipt'] = (...handed) => this.#evidence.hand(...handed)

  readonly guest = (vmId: string) => attached(vmId, this.#entries.get(vmId)?.link ?? null).channel

  async handEgress(vmId: string, egress: EgressCount, timeoutMs: number): Promise<void> {
    await this.guest(vmId).egress(egress, timeoutMs)
  }

  async pollIdle(vmId: string, poll: IdlePoll, timeoutMs: number): Promise<IdleAnswer> {
    return await this.guest(vmId).idle(poll, timeoutMs)
  }

  open(vmId: string): void {
    if (openVm(this.#deps.ledger.db, { id: vmId, nowMs: this.#deps.clock.nowMs() })) this.wake(vmId)
  }

  close(vmId: string): void {
    if (closeVm(this.#deps.ledger.db, { id: vmId, nowMs: this.#deps.clock.nowMs() })) this.wake(vmId)
  }

  onChange(listener: (vmId: string) => void): void {
    this.#listeners.push(listener)
  }

  /** Starts the workers of all VMs of this host. */
  start(): void {
    for (const vm of this.#listVms()) {
      const hadBooted = vm.state === 'booting' || vm.state === 'running'
      if (this.#deps.hostLoss !== null && hadBooted)
        this.#lostWithHost.set(vm.id, egressOf(this.#deps.ledger.db, vm.id)?.observedAtMs ?? null)
      this.wake(vm.id)
    }
    this.#workers.sweep(sweepMs, () => {
      for (const vm of this.#listVms()) if (vm.state !== 'failed') this.wake(vm.id)
    })
  }

  /** Stops watching. VMs continue to run. */
  async stop(): Promise<void> {
    await this.#workers.stop()
    for (const entry of this.#entries.values()) closeLink(entry)
  }

  #listVms(): Vm[] {
    return listVms(this.#deps.ledger.db, this.#deps.hostId)
  }

  #wakeWaiting(): void {
    for (const vm of this.#listVms()) if (vm.state === 'waiting') this.wake(vm.id)
  }

  /** Runs one turn of a VM's worker: the work of its state, then the move that the work requests. */
  async #look(vmId: string): Promise<void> {
    const { ledger, clock } = this.#deps
    const vm = vmById(ledger.db, vmId)
    if (vm === null || vm.state === 'gone') {
      this.#entries.get(vmId)?.link?.close()
      this.#entries.delete(vmId)
      return
    }
    const entry = this.#entries.get(vmId) ?? newEntry()
    this.#entries.set(vmId, entry)
    if (entry.state !== vm.state) Object.assign(entry, { state: vm.state, sinceMs: clock.monotonicMs() })
    const dismissed = vm.desired === 'gone' && next(vm.state, 'dismissed') !== null
    const event = dismissed ? 'dismissed' : await this.#work(vm, entry)
    if (event === null || (await this.#isHostsDoing(event))) return
    const change = ledger.transact(tx => this.#move(tx, vm, event))
    // Also after a failed move, because another process has then changed the row.
    this.wake(vm.id)
    if (change !== null) this.#announce(vm.id, change)
  }

  /** Reports whether the host's shutdown caused the loss, which the next start then records with its cause. */
  async #isHostsDoing(event: VmEvent): Promise<boolean> {
    if (!LOSSES.has(event) || !(await this.#deps.isHostStopping())) return false
    this.#deps.log.info('a VM was lost while the host shuts down; it is left as it is', { event })
    return true
  }

  /** Does the work of the state. Null if there is nothing to decide now; an event will wake the worker. */
  async #work(vm: Vm, entry: Entry): Promise<VmEvent | null> {
    for (const work of VM_TABLE[vm.state].work) {
      const event = await this.#works[work](vm, entry)
      if (event !== null) return event
    }
    return null
  }

  /** Makes every change of state, by the table, in the caller's transaction. Null if nothing changed. */
  #move(tx: LedgerDb, vm: Vm, event: VmEvent, addresses: VmAddresses = vm): Change | null {
    const to = next(vm.state, event)
    if (to === null) return null
    const nowMs = this.#deps.clock.nowMs()
    const changedAtMs =
      to === 'failed' ? Math.min(nowMs, Math.max(this.#lastWellMs(vm, event) ?? nowMs, vm.changedAtMs)) : nowMs
    const loss = this.#lostWithHost.has(vm.id) ? this.#deps.hostLoss : null
    const failureCode = to === 'failed' ? failureOf(vm.state, event, loss) : undefined
    const moved = moveVm(tx, {
      id: vm.id,
      from: vm.state,
      to,
      nowMs: changedAtMs,
      address: to === 'gone' ? null : addresses.address,
      addressV6: to === 'gone' ? null : addresses.addressV6,
      ...(event === 'spawned' ? { platform: this.#deps.platform } : {}),
      ...(failureCode === undefined
        ? {}
        : { failureCode, failureMessage: failureMessage(failureCode, this.#entries.get(vm.id)?.mismatch) }),
    })
    if (!moved) return null
    appendEvent(tx, { nowMs, kind: `vm.${to}`, subject: vm.id, detail: { from: vm.state, event, failureCode } })
    return { from: vm.state, to, event }
  }

  /**
   * Returns the time of a loss, which is noticed late, or after the host's next start: the last sign of life. Null
   * means now.
   */
  #lastWellMs(vm: Vm, event: VmEvent): number | null {
    const pulse = this.#entries.get(vm.id)?.pulse
    return this.#lostWithHost.get(vm.id) ?? (SILENCES.has(event) && pulse ? pulse.signMs : null)
  }

  #announce(vmId: string, change: Change): void {
    this.#deps.log.info('VM moved', { vm: vmId, ...change })
    // Any other move may have released room or a turn to boot.
    if (change.to !== 'launching') this.#wakeWaiting()
    this.#notify(vmId)
  }

  #notify(vmId: string): void {
    for (const listener of this.#listeners) listener(vmId)
  }

  /** Reserves room and moves the VM in one transaction, so that no two VMs get the same room. */
  #admit(vm: Vm, entry: Entry): VmEvent | null {
    const { ledger, clock, log } = this.#deps
    const { place, change } = ledger.transact(tx => this.#reserve(tx, vm))
    if (change !== null) {
      this.wake(vm.id)
      this.#announce(vm.id, change)
    }
    if (place.kind !== 'full') return null
    const waitMs = Math.max(this.#deps.capacityWaitMs, place.isEnding ? endingWaitMs : 0)
    const leftMs = entry.sinceMs + waitMs - clock.monotonicMs()
    if (leftMs <= 0) {
      log.warn('no room for a VM', { vm: vm.id, lacking: place.lacking })
      return 'refused'
    }
    // An address becomes free after its rest without an event.
    this.#workers.alarm(vm.id, Math.min(leftMs, sweepMs))
    return null
  }

  #reserve(tx: LedgerDb, vm: Vm): { place: AddressSlot; change: Change | null } {
    const nowMs = this.#deps.clock.nowMs()
    const place = placeFor(tx, vm, { ...this.#deps, nowMs: this.#deps.guard.certainMs() })
    if (place.kind !== 'place') return { place, change: null }
    const { address, addressV6 } = place
    const change = this.#move(tx, vm, 'admitted', { address, addressV6 })
    const record = (kind: 'address' | 'address_v6', name: string | null) =>
      change === null || name === null ? undefined : recordResource(tx, { vmId: vm.id, kind, name, nowMs })
    record('address', address)
    record('address_v6', addressV6)
    return { place, change }
  }

  async #build(vm: Vm, entry: Entry): Promise<VmEvent> {
    try {
      await this.#deps.driver.build(vm)
      return 'spawned'
    } catch (error) {
      this.#deps.log.error('a VM could not be started', { vm: vm.id, error })
      if (!(error instanceof LaunchMismatch)) return 'spawn_failed'
      entry.mismatch = error.parts.join(', ')
      return 'launch_mismatch'
    }
  }

  #bootLeftMs(entry: Entry): number {
    return entry.sinceMs + this.#deps.bootTimeoutMs - this.#deps.clock.monotonicMs()
  }

  /** Attaches the VM. Afterwards the entry has a link, or QEMU has ended. Faults: qmp.*, channel.*. */
  async #attach(vm: Vm, entry: Entry): Promise<VmEvent | null> {
    const { driver } = this.#deps
    if (!driver.isAlive(vm)) return 'qemu_gone'
    if (entry.link?.observe().closed) closeLink(entry)
    if (entry.link !== null) return null
    try {
      entry.link = await driver.attach(vm, () => this.wake(vm.id))
      return null
    } catch (error) {
      if (!driver.isAlive(vm)) return 'qemu_gone'
      const isSilent = error instanceof Fault && (error.code === 'qmp.timeout' || error.code === 'qmp.closed')
      const loss = isSilent && vm.state === 'running' ? this.#pulseOf(vm, entry).missedMonitor() : null
      if (loss !== null) return loss
      throw error
    }
  }

  async #greet(vm: Vm, entry: Entry): Promise<VmEvent | null> {
    const link = linkOf(entry)
    const { stopped, hello } = link.observe()
    if (stopped) return 'guest_stopped'
    if (hello === null) {
      const leftMs = Math.max(1, this.#bootLeftMs(entry))
      link.greet(leftMs)
      this.#workers.alarm(vm.id, leftMs)
      return null
    }
    await link.channel.network(networkOf(this.#deps.guestNetwork, vm), networkTimeoutMs)
    return 'greeted'
  }

  #watch(vm: Vm, entry: Entry): VmEvent | null {
    const link = linkOf(entry)
    const { stopped, paused, hello } = link.observe()
    // A paused VM does not answer.
    if (stopped || paused) return stopped ? 'guest_stopped' : null
    const loss = this.#pulseOf(vm, entry).ask(link)
    if (loss !== null) return loss
    if (hello === null) link.greet(this.#deps.bootTimeoutMs)
    // Services may wait for the hello after a reattach, although no state changes.
    if (hello !== entry.announcedHello) this.#notify(vm.id)
    entry.announcedHello = hello
    return null
  }

  /** Adapts the firewall to the ledger's state of the VM. */
  async #open(vm: Vm, entry: Entry): Promise<null> {
    const opened = vm.openedAtMs !== null && vm.closedAtMs === null
    if (vm.openedAtMs === null || opened === entry.opened) return null
    await this.#deps.driver.open()
    entry.opened = opened
    this.#notify(vm.id)
    return null
  }

  #pulseOf(vm: Vm, entry: Entry): Pulse {
    const { clock, log, probeSsh, driver } = this.#deps
    entry.pulse ??= new Pulse({
      clock,
      log,
      vmId: vm.id,
      probeSsh,
      checkNetwork: () => driver.checkNetwork(vm),
      address: present(vm.address ?? vm.addressV6, 'a running VM has an address'),
      onChange: () => this.wake(vm.id),
    })
    return entry.pulse
  }

  /** Requests the guest to stop. Without a link it is ended by force in the release; attaching is not worth it. */
  async #powerDown(vm: Vm, entry: Entry): Promise<null> {
    await this.#deps.driver.powerDown(vm, entry.link)
    return null
  }

  /** Releases the VM. A failed VM keeps its directory, with the console's text, until it is dismissed. */
  async #release(vm: Vm, entry: Entry): Promise<VmEvent | null> {
    closeLink(entry)
    const hasFailed = vm.state === 'failed'
    await this.#deps.driver.release(vm, { keepDirectory: hasFailed })
    if (!hasFailed) return 'released'
    this.#wakeWaiting()
    return null
  }
}
