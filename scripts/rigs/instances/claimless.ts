// The instance reconciler without claims of VMs. Effects: SQL on the host's database, a timer.

import type { Clock } from '../../../src/base/clock.ts'
import { createWorkers } from '../../../src/base/work/workers.ts'
import type { InstanceFailureCode } from '../../../src/contract/http/instance.ts'
import { type InstanceEvent, nextStatus, taskOf } from '../../../src/instances/instance.machine.ts'
import type { RestartVerdict } from '../../../src/instances/restart-on-other-host.ts'
import type { Store } from '../../../src/store/db.ts'
import { listLeftVms, removeLeftVm } from '../../../src/store/directory/attempt.query.ts'
import {
  type InstanceSet,
  instanceById,
  instanceByVm,
  listLiving,
  moveInstance,
} from '../../../src/store/directory/instance.query.ts'
import type { Instance } from '../../../src/store/directory/instance.table.ts'
import type { VmEngine } from '../../../src/vm/engine.ts'

/** The shape of every VM. */
export const spec = { image: 'instance', vcpus: 2, memoryMib: 2048 } as const

export type Engine = Pick<VmEngine, 'define' | 'dismiss' | 'view' | 'onChange'>

export type Claimless = {
  readonly store: Store
  readonly clock: Clock
  readonly engine: Engine
  readonly claim: (claim: { vmId: string; claimId: string }) => Promise<void>
  readonly elsewhere?: (instance: Instance, failureCode: InstanceFailureCode) => Promise<RestartVerdict>
}

/** The instance reconciler by its own table, but for the claim: what is claimed without a fault is ready. */
export function claimless({ store, clock, engine, claim, elsewhere }: Claimless) {
  const move = ({ id, status: from }: Instance, event: InstanceEvent, set: InstanceSet) => {
    const to = nextStatus(from, event)
    if (to !== null) store.directory.transact(tx => moveInstance(tx, { id, from, to, nowMs: clock.nowMs(), ...set }))
    workers.wake(id)
  }
  const provision = async (instance: Instance, vmId: string) => {
    if (engine.view(vmId)?.guest === null) return
    try {
      await claim({ vmId, claimId: instance.id })
      move(instance, 'usable', { readyAtMs: clock.nowMs() })
    } catch {
      await fail(instance, 'claim_failed')
    }
  }
  const fail = async (instance: Instance, failureCode: InstanceFailureCode) => {
    const isGiven = instance.status === 'provisioning' && (await elsewhere?.(instance, failureCode))?.kind === 'given'
    if (!isGiven) move(instance, 'broken', { failureCode })
  }
  const endLeft = () => {
    for (const vmId of listLeftVms(store.directory.db)) {
      if (engine.view(vmId) === null) removeLeftVm(store.directory.db, vmId)
      else engine.dismiss(vmId)
    }
  }
  const look = async (id: string): Promise<void> => {
    const instance = instanceById(store.directory.db, id)
    if (instance === null || instance.hostId !== store.hostId) return
    const { vmId } = instance
    const vm = vmId === null ? null : engine.view(vmId)
    const task = taskOf(instance.status, vm?.state ?? null)
    if (task === 'define_vm') {
      if (vmId === null) await fail(instance, 'internal')
      else engine.define(vmId, spec)
    }
    if (task === 'provision' && vm !== null) await provision(instance, vm.id)
    if (task === 'fail_with_vm') await fail(instance, vm?.failureCode ?? 'internal')
    if (task === 'dismiss_vm' && vm !== null) engine.dismiss(vm.id)
    if (task === 'finish') move(instance, 'vm_gone', { terminatedAtMs: clock.nowMs(), vmId: null })
  }
  const bounds = { onFailure: () => {} }
  const workers = createWorkers({ clock, work: look, ...bounds })
  return {
    wake: (id: string) => workers.wake(id),
    endLeft,
    wakeDeleted: ({ id, vmId }: Instance) => {
      workers.wake(id)
      if (vmId !== null) engine.dismiss(vmId)
    },
    start: () => {
      engine.onChange(vmId => {
        const instance = instanceByVm(store.directory.db, vmId)
        if (instance !== null) workers.wake(instance.id)
        else endLeft()
      })
      endLeft()
      for (const { id } of listLiving(store.directory.db, store.hostId)) workers.wake(id)
    },
    stop: () => workers.stop(),
  }
}
