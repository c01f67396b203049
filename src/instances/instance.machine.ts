// States of an instance as data (contract 3.1). Pure. An absent cell is a refusal.

import type { InstanceStatus } from '../store/directory/instance.table.ts'
import type { VmState } from '../store/ledger/vm.table.ts'

export type InstanceEvent =
  /** The claim is in force and the readiness probe saw the host key that the agent reported. */
  | 'usable'
  /** Provisioning or the VM itself failed for good; the failure code says how. */
  | 'broken'
  /** A delete was accepted. */
  | 'deleted'
  /** Nothing of the VM is left on the host. */
  | 'vm_gone'

type Row = { readonly [event in InstanceEvent]?: InstanceStatus }

export const INSTANCE_TABLE = {
  provisioning: { usable: 'ready', broken: 'failed', deleted: 'terminating' },
  ready: { broken: 'failed', deleted: 'terminating' },
  failed: { deleted: 'terminating' },
  terminating: { vm_gone: 'terminated' },
  terminated: {},
} as const satisfies Record<InstanceStatus, Row>

export function nextStatus(status: InstanceStatus, event: InstanceEvent): InstanceStatus | null {
  const row: Row = INSTANCE_TABLE[status]
  return row[event] ?? null
}

export type InstanceTask = 'wait' | 'provision' | 'fail_with_vm' | 'finish'

/** What an instance needs, from its status and its VM's state (null: the VM's row is gone). */
export function taskOf(status: InstanceStatus, vm: VmState | null): InstanceTask {
  switch (status) {
    case 'provisioning':
      if (vm === 'running') return 'provision'
      return isLost(vm) ? 'fail_with_vm' : 'wait'
    case 'ready':
      return isLost(vm) ? 'fail_with_vm' : 'wait'
    case 'terminating':
      return vm === 'gone' || vm === null ? 'finish' : 'wait'
    case 'failed':
    case 'terminated':
      return 'wait'
  }
}

function isLost(vm: VmState | null): boolean {
  return vm === null || vm === 'failed' || vm === 'stopping' || vm === 'gone'
}
