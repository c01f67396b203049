// Moves every instance towards what its owner asked for: claim, readiness probe, ready; failure; the end of a delete.
// Effects: through the VM engine, the SSH probe and the store. One worker per instance, level-triggered.

import type { Clock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import type { RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { createWorkers } from '../base/workers.ts'
import { INSTANCE_FAILURES, type InstanceFailureCode } from '../contract/instance.ts'
import type { SshProbe } from '../host/network/ssh-probe.ts'
import type { Store } from '../store/db.ts'
import {
  type InstanceSet,
  instanceById,
  instancesByVm,
  listLive,
  moveInstance,
} from '../store/directory/instance.query.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import { appendEvent } from '../store/ledger/event.query.ts'
import type { VmEngine, VmView } from '../vm/engine.ts'
import { claimOf, sealClaim } from './claim.plan.ts'
import { type InstanceEvent, nextStatus, taskOf } from './instance.machine.ts'

export type InstanceReconcilerDeps = {
  readonly store: Store
  readonly engine: VmEngine
  readonly probe: (probe: SshProbe) => Promise<void>
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  readonly inferenceBaseUrl: string
  /** PEM of the authority behind inferenceBaseUrl; null for a publicly trusted one. */
  readonly inferenceCa: string | null
  /** The instance's own gateway key, the same at every call; null without a gateway. */
  readonly inferenceKey: (instanceId: string) => string | null
  readonly claimTimeoutMs: number
  readonly sshTimeoutMs: number
}

export type InstanceReconciler = {
  /** Lets an instance be looked at now. Never throws, never waits. */
  readonly wake: (instanceId: string) => void
  readonly start: () => void
  readonly stop: () => Promise<void>
}

const claimAttemptsMax = 3
const sshPort = 22
const probeTimeoutMs = 10_000
const probePauseMs = 100
const retryMinMs = 200
const retryMaxMs = 10_000
/** Everything is looked at this often, should a wake have been lost. */
const sweepMs = 5_000

export function createInstanceReconciler(deps: InstanceReconcilerDeps): InstanceReconciler {
  const { store, engine, clock, log } = deps
  const stopping = new AbortController()

  const work = async (id: string): Promise<void> => {
    const instance = instanceById(store.db, id)
    if (instance === null) return
    const vm = instance.vmId === null ? null : engine.view(instance.vmId)
    switch (taskOf(instance.status, vm?.state ?? null)) {
      case 'wait':
        return
      case 'provision':
        return vm === null ? undefined : provision(instance, vm)
      case 'fail_with_vm':
        return fail(instance, vm?.failureCode ?? 'internal')
      case 'finish': {
        const terminatedAtMs = clock.nowMs()
        move(instance, 'vm_gone', { terminatedAtMs, vmId: null })
        return
      }
    }
  }

  const provision = async (instance: Instance, vm: VmView): Promise<void> => {
    // A restarted daemon may have attached without having been greeted yet; the greeting wakes us.
    if (vm.guest === null || vm.address === null) return
    const hostKey = await claim(instance, vm.id)
    if (hostKey === null || !(await reachable(instance, vm.address, hostKey))) return
    if (move(instance, 'usable', { readyAtMs: clock.nowMs() })) return
    log.info('an instance was moved while it was being provisioned', { instance: instance.id })
  }

  /** The host key that the claimed guest reports, or null after a failure that has been recorded, or when nobody wants it any more. */
  const claim = async (instance: Instance, vmId: string): Promise<string | null> => {
    const organization = organizationById(store.db, instance.organizationId)
    if (organization === null) throw new Fault('internal', `instance ${instance.id} has no organization`)
    const { inferenceBaseUrl: baseUrl, inferenceCa: ca } = deps
    for (let attempt = 1; stillWanted(instance); attempt += 1) {
      try {
        const guest = await greeted(vmId)
        const inference = { baseUrl, ca, key: deps.inferenceKey(instance.id) }
        const wanted = claimOf({ instance, organization: organization.slug, inference })
        const sealed = sealClaim(wanted, guest.boxKey, deps.random)
        return (await engine.claim(vmId, sealed, deps.claimTimeoutMs)).sshHostKey
      } catch (error) {
        if (stopping.signal.aborted) return null
        log.warn('a claim failed', { instance: instance.id, vm: vmId, attempt, error })
        if (attempt >= claimAttemptsMax) {
          fail(instance, 'claim_failed')
          return null
        }
      }
    }
    return null
  }

  /** What the guest says of itself now: after a failed claim it is asked anew. */
  const greeted = async (vmId: string): Promise<NonNullable<VmView['guest']>> => {
    const deadlineMs = clock.monotonicMs() + deps.claimTimeoutMs
    for (;;) {
      const guest = engine.view(vmId)?.guest
      if (guest) return guest
      if (clock.monotonicMs() >= deadlineMs) throw new Fault('channel.timeout', 'the agent did not say hello again')
      await clock.sleep(probePauseMs, stopping.signal)
    }
  }

  const reachable = async (instance: Instance, address: string, hostKey: string): Promise<boolean> => {
    const deadlineMs = clock.monotonicMs() + deps.sshTimeoutMs
    for (let attempt = 1; stillWanted(instance); attempt += 1) {
      const leftMs = deadlineMs - clock.monotonicMs()
      try {
        if (leftMs <= 0) throw new Fault('ssh.unreachable', `not reachable within ${deps.sshTimeoutMs} ms`)
        await deps.probe({ address, port: sshPort, hostKey, timeoutMs: Math.min(leftMs, probeTimeoutMs) })
        return true
      } catch (error) {
        if (stopping.signal.aborted) return false
        if (leftMs <= 0 || (error instanceof Fault && error.code === 'ssh.wrong_host_key')) {
          log.error('an instance cannot be reached by SSH', {
            instance: instance.id,
            attempt,
            reason: messageOf(error),
          })
          fail(instance, 'ssh_unreachable')
          return false
        }
        await clock.sleep(probePauseMs, stopping.signal).catch(() => {})
      }
    }
    return false
  }

  const stillWanted = (instance: Instance): boolean => {
    if (stopping.signal.aborted) return false
    const now = instanceById(store.db, instance.id)
    return now?.status === 'provisioning' && now.desired === 'present'
  }

  const fail = (instance: Instance, failureCode: InstanceFailureCode): void => {
    move(instance, 'broken', { failureCode, failureMessage: INSTANCE_FAILURES[failureCode] })
    // A VM that failed by itself is kept, stopped, for its console; one that still runs serves nobody.
    if (instance.vmId !== null && engine.view(instance.vmId)?.state === 'running') {
      const { vmId } = instance
      store.transact(tx => engine.dismiss(tx, vmId))
      engine.wake(vmId)
    }
  }

  const move = (instance: Instance, event: InstanceEvent, set: InstanceSet): boolean => {
    const to = nextStatus(instance.status, event)
    if (to === null) return false
    const nowMs = clock.nowMs()
    const moved = store.transact(tx => {
      if (!moveInstance(tx, { id: instance.id, from: instance.status, to, nowMs, ...set })) return false
      const detail = { from: instance.status, failureCode: set.failureCode }
      appendEvent(tx, { nowMs, kind: `instance.${to}`, subject: instance.id, detail })
      return true
    })
    if (moved)
      log.info('instance moved', { instance: instance.id, from: instance.status, to, failureCode: set.failureCode })
    workers.wake(instance.id)
    return moved
  }

  const workers = createWorkers({
    clock,
    work,
    retryMinMs,
    retryMaxMs,
    onFailure: ({ key, error, retryMs }) =>
      log.warn('instance work failed; it will be tried again', { instance: key, retryMs, error }),
  })

  const wakeAll = () => {
    for (const instance of listLive(store.db)) workers.wake(instance.id)
  }

  const sweep = async () => {
    while (!stopping.signal.aborted) {
      await clock.sleep(sweepMs, stopping.signal).catch(() => {})
      wakeAll()
    }
  }

  return {
    wake: workers.wake,
    start: () => {
      engine.onChange(vmId => {
        for (const instance of instancesByVm(store.db, vmId)) workers.wake(instance.id)
      })
      wakeAll()
      void sweep()
    },
    stop: async () => {
      stopping.abort()
      await workers.stop()
    },
  }
}
