// Moves every instance of this host towards its owner's desired state: its VM, provisioning (provision.ts), ready;
// failure; deletion. Effects: through the VM engine and the store. One level-triggered worker per instance.

import { Fault } from '../base/fault.ts'
import { createWorkers, type Workers } from '../base/work/workers.ts'
import { INSTANCE_FAILURES, type InstanceFailureCode } from '../contract/http/instance.ts'
import type { DirectoryDb, Store } from '../store/db.ts'
import { listLeftVms, removeLeftVm } from '../store/directory/attempt.query.ts'
import { storeAttestation } from '../store/directory/attestation.query.ts'
import {
  type InstanceSet,
  instanceById,
  instanceByVm,
  listLiving,
  listProvisioning,
  moveInstance,
} from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import type { VmEngine, VmSpec, VmView } from '../vm/engine.ts'
import { type InstanceEvent, nextStatus, taskOf } from './instance.machine.ts'
import { type ProvisionDeps, Provisioner } from './provision.ts'
import type { RestartVerdict } from './restart-on-other-host.ts'

export type InstanceReconcilerDeps = Omit<ProvisionDeps, 'engine'> & {
  readonly store: Pick<Store, 'directory' | 'ledger' | 'hostId'>
  readonly engine: VmEngine
  /** Spec of instance VMs. */
  readonly vmSpec: VmSpec
  /** Limit on one organization's VMs that boot or wait to boot, so that others need not wait for all of them. */
  readonly bootingPerOrganizationMax: number
  /**
   * Moves an instance that failed before it was ready to another host. Absent on a standalone host. Fault
   * `fleet.unavailable`; it is retried.
   */
  readonly elsewhere?: (instance: Instance, failureCode: InstanceFailureCode) => Promise<RestartVerdict>
  /** Called after the commit that publishes its host key. */
  readonly onReady: (instanceId: string) => void
}

/** Interval at which everything is checked, in case a wake was lost. */
const sweepMs = 5_000

export class InstanceReconciler {
  readonly #deps: InstanceReconcilerDeps
  readonly #stopping = new AbortController()
  readonly #workers: Workers
  readonly #provisioner: Provisioner
  /** Instances whose VM is not created yet, by organization. */
  readonly #deferred = new Map<string, Set<string>>()

  constructor(deps: InstanceReconcilerDeps) {
    this.#deps = deps
    this.#provisioner = new Provisioner(deps)
    this.#workers = createWorkers({
      clock: deps.clock,
      work: id => this.#look(id),
      onFailure: ({ key, error, retryMs }) =>
        deps.log.warn('instance work failed; it will be tried again', { instance: key, retryMs, error }),
    })
  }

  /** Reconciles an instance now. Never throws, never waits. */
  wake(instanceId: string): void {
    this.#workers.wake(instanceId)
  }

  /**
   * Call it after a delete was accepted. Dismisses the VM at once, because the instance's worker may be in the middle
   * of a claim.
   */
  wakeDeleted({ id, vmId }: Pick<Instance, 'id' | 'vmId'>): void {
    this.wake(id)
    if (vmId !== null) this.#deps.engine.dismiss(vmId)
  }

  start(): void {
    const { engine, store } = this.#deps
    engine.onChange(vmId => {
      const instance = instanceByVm(store.directory.db, vmId)
      if (instance === null) return this.endLeft()
      this.wake(instance.id)
      for (const id of this.#deferred.get(instance.organizationId) ?? []) this.wake(id)
    })
    this.#workers.sweep(sweepMs, () => this.#wakeAll())
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#workers.stop()
  }

  #wakeAll(): void {
    const { directory, hostId } = this.#deps.store
    for (const instance of listLiving(directory.db, hostId)) this.wake(instance.id)
    this.endLeft()
  }

  /** Ends VMs whose instance has left this host. Never throws, never waits. */
  endLeft(): void {
    const { store, engine, log } = this.#deps
    try {
      for (const vmId of listLeftVms(store.directory.db)) {
        const vm = engine.view(vmId)
        if (vm === null || vm.state === 'gone') removeLeftVm(store.directory.db, vmId)
        else engine.dismiss(vmId)
      }
    } catch (error) {
      log.error('VMs that were given up could not be ended; the next look tries again', { error })
    }
  }

  /** Runs one turn of an instance's worker. */
  async #look(id: string): Promise<void> {
    const { store, engine, clock, vmSpec } = this.#deps
    const instance = instanceById(store.directory.db, id)
    if (instance === null || instance.hostId !== store.hostId) return
    const { vmId } = instance
    if (instance.status !== 'provisioning') this.#deferred.get(instance.organizationId)?.delete(id)
    const vm = vmId === null ? null : engine.view(vmId)
    switch (taskOf(instance.status, vm?.state ?? null)) {
      case 'wait':
        return
      case 'define_vm':
        // A row without a VM cannot be repaired.
        if (vmId === null) await this.#fail(instance, 'internal')
        else if (this.#mayBoot(instance)) engine.define(vmId, vmSpec)
        return
      case 'provision':
        return vm === null ? undefined : this.#provision(instance, vm)
      case 'fail_with_vm':
        await this.#fail(instance, vm?.failureCode ?? 'internal', {
          atMs: vm?.failedAtMs ?? null,
          message: vm?.failureMessage ?? null,
        })
        return
      case 'dismiss_vm':
        if (vmId !== null) engine.dismiss(vmId)
        return
      case 'finish':
        this.#move(instance, 'vm_gone', { set: { terminatedAtMs: clock.nowMs(), vmId: null } })
    }
  }

  /**
   * Reports whether its VM is among the first of its organization that are not running; otherwise a change of these
   * wakes it.
   */
  #mayBoot({ id, organizationId }: Instance): boolean {
    const { store, engine, bootingPerOrganizationMax } = this.#deps
    const deferred = this.#deferred.get(organizationId) ?? new Set()
    const notUp = listProvisioning(store.directory.db, { hostId: store.hostId, organizationId })
      .filter(({ vmId }) => (vmId === null ? null : engine.view(vmId))?.state !== 'running')
      .slice(0, bootingPerOrganizationMax)
    const isFirst = notUp.some(waiting => waiting.id === id)
    if (isFirst) deferred.delete(id)
    else deferred.add(id)
    if (deferred.size === 0) this.#deferred.delete(organizationId)
    else this.#deferred.set(organizationId, deferred)
    return isFirst
  }

  async #provision(instance: Instance, vm: VmView): Promise<void> {
    // A restarted daemon may have attached before the guest's greeting, which wakes this worker.
    const address = vm.address ?? vm.addressV6
    if (vm.guest === null || address === null) return
    const { store, clock, log, onReady } = this.#deps
    const organization = organizationById(store.directory.db, instance.organizationId)
    if (organization === null) throw new Fault('internal', `instance ${instance.id} has no organization`)
    const done = await this.#provisioner.run({
      instance,
      organization: organization.slug,
      vmId: vm.id,
      address,
      isStillWanted: () => this.#isStillWanted(instance),
      signal: this.#stopping.signal,
    })
    if (done.kind === 'unwanted') return
    if (done.kind === 'broken') return this.#fail(instance, done.code, { detail: done.detail, message: done.message })
    const { sshHostKey, attestation } = done
    const nowMs = clock.nowMs()
    const row = { nonce: attestation.nonce, sshHostKey, attestedAtMs: nowMs, document: JSON.stringify(attestation) }
    const isMoved = this.#move(instance, 'usable', {
      set: { readyAtMs: nowMs, platform: vm.platform },
      // Written in the transaction that makes it ready, so that no instance is ready without its proof.
      alongside: tx => storeAttestation(tx, { instanceId: instance.id, ...row }),
    })
    if (isMoved) onReady(instance.id)
    else log.info('an instance was moved while it was being provisioned', { instance: instance.id })
  }

  #isStillWanted(instance: Instance): boolean {
    if (this.#stopping.signal.aborted) return false
    const now = instanceById(this.#deps.store.directory.db, instance.id)
    return now?.status === 'provisioning' && now.desired === 'present' && now.attempt === instance.attempt
  }

  /** Fails an instance. Fault `fleet.unavailable` if it is not known yet whether another host may try it. */
  async #fail(
    instance: Instance,
    failureCode: InstanceFailureCode,
    { message, ...more }: Pick<Move, 'atMs' | 'detail'> & { readonly message?: string | null } = {},
  ): Promise<void> {
    if (instance.status === 'provisioning' && (await this.#isGiven(instance, failureCode, more.detail))) return
    const failureMessage = message ?? INSTANCE_FAILURES[failureCode]
    this.#move(instance, 'broken', { set: { failureCode, failureMessage }, ...more })
  }

  async #isGiven(instance: Instance, failureCode: InstanceFailureCode, detail: Move['detail']): Promise<boolean> {
    const { store, clock, log, elsewhere } = this.#deps
    const outcome = await elsewhere?.(instance, failureCode)
    if (outcome?.kind !== 'given') return false
    if (outcome.hostId !== null) {
      const { id } = instance
      const told = { failureCode, host: outcome.hostId, ...detail }
      log.warn('an instance failed before it was ready; another host of the fleet has it now', {
        instance: id,
        ...told,
      })
      noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), kind: 'instance.given', subject: id, detail: told })
    }
    return true
  }

  /** Moves an instance. Returns false if it has changed since it was read. In both cases it is reconciled again. */
  #move(instance: Instance, event: InstanceEvent, { set, atMs, alongside, detail }: Move): boolean {
    const { store, clock, log } = this.#deps
    const { id, status: from } = instance
    const to = nextStatus(from, event)
    if (to === null) return false
    const nowMs = clock.nowMs()
    // Never before its last change, which would reverse its log, and never in the future.
    const changedAtMs = Math.min(nowMs, Math.max(atMs ?? nowMs, instance.changedAtMs))
    const isMoved = store.directory.transact(tx => {
      const isSame = instanceById(tx, id)?.attempt === instance.attempt
      const moved = isSame && moveInstance(tx, { id, from, to, nowMs: changedAtMs, ...set })
      if (moved) alongside?.(tx)
      return moved
    })
    this.wake(id)
    if (!isMoved) return false
    const { failureCode } = set
    log.info('instance moved', { instance: id, from, to, failureCode, ...detail })
    noteEvent(store.ledger.db, log, {
      nowMs,
      kind: `instance.${to}`,
      subject: id,
      detail: { from, failureCode, ...detail },
    })
    return true
  }
}

type Move = {
  readonly set: InstanceSet
  /** Time of the last successful check, at which billed hours end; otherwise now. */
  readonly atMs?: number | null
  /** Runs in the same transaction as the move. */
  readonly alongside?: (tx: DirectoryDb) => void
  /** Detail for the operator. */
  readonly detail?: Readonly<Record<string, unknown>>
}
