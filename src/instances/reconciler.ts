// Moves every instance of this host towards what its owner asked for: its VM, claim, readiness probe, ready; failure; the end of a delete.
// Effects: through the VM engine, the SSH probe and the store. One worker per instance, level-triggered.

import { type Clock, pause } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { createWorkers, type Workers } from '../base/workers.ts'
import { INSTANCE_FAILURES, type InstanceFailureCode } from '../contract/instance.ts'
import type { SshProbe } from '../host/network/ssh-probe.ts'
import type { Store } from '../store/db.ts'
import {
  type InstanceSet,
  instanceById,
  instanceByVm,
  listLiving,
  moveInstance,
} from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import { appendEvent } from '../store/ledger/event.query.ts'
import type { VmEngine, VmSpec, VmView } from '../vm/engine.ts'
import { type ClaimInputs, claimOf, sealClaim } from './claim.plan.ts'
import { type InstanceEvent, nextStatus, taskOf } from './instance.machine.ts'

export type InstanceReconcilerDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger' | 'hostId'>
  readonly engine: VmEngine
  /** Of the VMs that are made for instances. */
  readonly vmSpec: VmSpec
  readonly probe: (probe: SshProbe) => Promise<void>
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  /** The gateway as instances reach it; `ca` is the PEM of the authority behind it, null for a publicly trusted one. */
  readonly gateway: Pick<ClaimInputs['inference'], 'baseUrl' | 'address' | 'ca'>
  /** The instance's own gateway key, the same at every call; null without a gateway. */
  readonly inferenceKey: (instanceId: string) => string | null
  readonly claimTimeoutMs: number
  readonly sshTimeoutMs: number
}

const claimAttemptsMax = 3
const sshPort = 22
const probeTimeoutMs = 10_000
const probePauseMs = 100
const retryMinMs = 200
const retryMaxMs = 10_000
/** Everything is looked at this often, should a wake have been lost. */
const sweepMs = 5_000

export class InstanceReconciler {
  readonly #deps: InstanceReconcilerDeps
  readonly #stopping = new AbortController()
  readonly #workers: Workers

  constructor(deps: InstanceReconcilerDeps) {
    this.#deps = deps
    this.#workers = createWorkers({
      clock: deps.clock,
      work: id => this.#look(id),
      retryMinMs,
      retryMaxMs,
      onFailure: ({ key, error, retryMs }) =>
        deps.log.warn('instance work failed; it will be tried again', { instance: key, retryMs, error }),
    })
  }

  /** Lets an instance be looked at now. Never throws, never waits. */
  wake(instanceId: string): void {
    this.#workers.wake(instanceId)
  }

  /** After a delete was accepted. The VM is dismissed at once, for the instance's worker may be in the middle of a claim on it. */
  wakeDeleted({ id, vmId }: Pick<Instance, 'id' | 'vmId'>): void {
    this.wake(id)
    if (vmId !== null) this.#deps.engine.dismiss(vmId)
  }

  start(): void {
    const { engine, store } = this.#deps
    engine.onChange(vmId => {
      const instance = instanceByVm(store.directory.db, vmId)
      if (instance !== null) this.wake(instance.id)
    })
    this.#wakeAll()
    void this.#sweep()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#workers.stop()
  }

  #wakeAll(): void {
    const { directory, hostId } = this.#deps.store
    for (const instance of listLiving(directory.db, hostId)) this.wake(instance.id)
  }

  async #sweep(): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      await pause(this.#deps.clock, sweepMs, this.#stopping.signal)
      this.#wakeAll()
    }
  }

  /** One turn of an instance's worker. */
  async #look(id: string): Promise<void> {
    const { store, engine, clock, vmSpec } = this.#deps
    const instance = instanceById(store.directory.db, id)
    if (instance === null || instance.hostId !== store.hostId) return
    const { vmId } = instance
    const vm = vmId === null ? null : engine.view(vmId)
    switch (taskOf(instance.status, vm?.state ?? null)) {
      case 'wait':
        return
      case 'define_vm':
        // A row that names no VM cannot be helped.
        if (vmId === null) this.#fail(instance, 'internal')
        else engine.define(vmId, vmSpec)
        return
      case 'provision':
        return vm === null ? undefined : this.#provision(instance, vm)
      case 'fail_with_vm':
        this.#fail(instance, vm?.failureCode ?? 'internal', vm?.failedAtMs ?? null, vm?.failureMessage)
        return
      case 'dismiss_vm':
        if (vmId !== null) engine.dismiss(vmId)
        return
      case 'finish':
        this.#move(instance, 'vm_gone', { terminatedAtMs: clock.nowMs(), vmId: null })
    }
  }

  async #provision(instance: Instance, vm: VmView): Promise<void> {
    // A restarted daemon may have attached without having been greeted yet; the greeting wakes us.
    if (vm.guest === null || vm.address === null) return
    const hostKey = await this.#claim(instance, vm.id)
    if (hostKey === null || !(await this.#isReachable(instance, vm.address, hostKey))) return
    const { clock, log } = this.#deps
    if (this.#move(instance, 'usable', { readyAtMs: clock.nowMs(), platform: vm.platform })) return
    log.info('an instance was moved while it was being provisioned', { instance: instance.id })
  }

  /** The host key that the claimed guest reports. Null: a failure that has been recorded, or nobody wants the instance any more. */
  async #claim(instance: Instance, vmId: string): Promise<string | null> {
    const { store, engine, random, log, gateway } = this.#deps
    const organization = organizationById(store.directory.db, instance.organizationId)
    if (organization === null) throw new Fault('internal', `instance ${instance.id} has no organization`)
    for (let attempt = 1; this.#isStillWanted(instance); attempt += 1) {
      try {
        const guest = await this.#guestOf(vmId)
        const inference = { ...gateway, key: this.#deps.inferenceKey(instance.id) }
        const wanted = claimOf({ instance, organization: organization.slug, inference })
        const sealed = sealClaim(wanted, guest.boxKey, random)
        return (await engine.claim(vmId, sealed, this.#deps.claimTimeoutMs)).sshHostKey
      } catch (error) {
        if (this.#stopping.signal.aborted) return null
        log.warn('a claim failed', { instance: instance.id, vm: vmId, attempt, error })
        if (attempt >= claimAttemptsMax) {
          this.#fail(instance, 'claim_failed')
          return null
        }
      }
    }
    return null
  }

  /** What the guest says of itself now: after a failed claim it is asked anew. Fault: channel.timeout. */
  async #guestOf(vmId: string): Promise<NonNullable<VmView['guest']>> {
    const { clock, engine, claimTimeoutMs } = this.#deps
    const deadlineMs = clock.monotonicMs() + claimTimeoutMs
    for (;;) {
      const guest = engine.view(vmId)?.guest
      if (guest) return guest
      if (clock.monotonicMs() >= deadlineMs) throw new Fault('channel.timeout', 'the agent did not say hello again')
      await clock.sleep(probePauseMs, this.#stopping.signal)
    }
  }

  async #isReachable(instance: Instance, address: string, hostKey: string): Promise<boolean> {
    const { clock, log, probe, sshTimeoutMs } = this.#deps
    const deadlineMs = clock.monotonicMs() + sshTimeoutMs
    for (let attempt = 1; this.#isStillWanted(instance); attempt += 1) {
      const leftMs = deadlineMs - clock.monotonicMs()
      try {
        if (leftMs <= 0) throw new Fault('ssh.unreachable', `not reachable within ${sshTimeoutMs} ms`)
        await probe({ address, port: sshPort, hostKey, timeoutMs: Math.min(leftMs, probeTimeoutMs) })
        return true
      } catch (error) {
        if (this.#stopping.signal.aborted) return false
        if (leftMs <= 0 || (error instanceof Fault && error.code === 'ssh.wrong_host_key')) {
          const reason = messageOf(error)
          log.error('an instance cannot be reached by SSH', { instance: instance.id, attempt, reason })
          this.#fail(instance, 'ssh_unreachable')
          return false
        }
        await pause(clock, probePauseMs, this.#stopping.signal)
      }
    }
    return false
  }

  #isStillWanted(instance: Instance): boolean {
    if (this.#stopping.signal.aborted) return false
    const now = instanceById(this.#deps.store.directory.db, instance.id)
    return now?.status === 'provisioning' && now.desired === 'present'
  }

  /** `atMs`: when it was last known to be well, so that hours end there; null: now. */
  #fail(
    instance: Instance,
    failureCode: InstanceFailureCode,
    atMs: number | null = null,
    message: string | null = null,
  ): void {
    const failureMessage = message ?? INSTANCE_FAILURES[failureCode]
    this.#move(instance, 'broken', { failureCode, failureMessage }, atMs)
  }

  /** False: the instance was moved by somebody else since it was read. Either way it is looked at again. */
  #move(instance: Instance, event: InstanceEvent, set: InstanceSet, atMs: number | null = null): boolean {
    const { store, clock, log } = this.#deps
    const { id, status: from } = instance
    const to = nextStatus(from, event)
    if (to === null) return false
    const nowMs = clock.nowMs()
    // Never before its last change, or its log would run backwards; never in the future.
    const changedAtMs = Math.min(nowMs, Math.max(atMs ?? nowMs, instance.changedAtMs))
    const moved = store.directory.transact(tx => moveInstance(tx, { id, from, to, nowMs: changedAtMs, ...set }))
    this.wake(id)
    if (!moved) return false
    const { failureCode } = set
    log.info('instance moved', { instance: id, from, to, failureCode })
    appendEvent(store.ledger.db, { nowMs, kind: `instance.${to}`, subject: id, detail: { from, failureCode } })
    return true
  }
}
