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

/** Next step of an instance; harmless to repeat. */
export type InstanceTask =
  | 'wait'
  /** Have its VM made, under the id that its row names. */
  | 'define_vm'
  /** Claim the VM and probe it. */
  | 'provision'
  | 'fail_with_vm'
  /** Have its VM taken down. */
  | 'dismiss_vm'
  /** Nothing of the VM is left: terminate. */
  | 'finish'

type Tasks = { readonly [vm in VmState | 'absent']: InstanceTask }

/**
 * Tasks by status and state of the VM. `absent`: the ledger has no such VM, since it is not made yet or is purged.
 * Directory row and ledger VM are never written together, so each pair may be met after a crash.
 */
export const INSTANCE_TASKS = {
  provisioning: {
    absent: 'define_vm',
    waiting: 'wait',
    launching: 'wait',
    booting: 'wait',
    running: 'provision',
    stopping: 'fail_with_vm',
    failed: 'fail_with_vm',
    gone: 'fail_with_vm',
  },
  ready: {
    absent: 'fail_with_vm',
    waiting: 'wait',
    launching: 'wait',
    booting: 'wait',
    running: 'wait',
    stopping: 'fail_with_vm',
    failed: 'fail_with_vm',
    gone: 'fail_with_vm',
  },
  // A VM that failed by itself is kept, stopped, for its console; one that still runs serves nobody.
  failed: {
    absent: 'wait',
    waiting: 'dismiss_vm',
    launching: 'dismiss_vm',
    booting: 'dismiss_vm',
    running: 'dismiss_vm',
    stopping: 'wait',
    failed: 'wait',
    gone: 'wait',
  },
  terminating: {
    absent: 'finish',
    waiting: 'dismiss_vm',
    launching: 'dismiss_vm',
    booting: 'dismiss_vm',
    running: 'dismiss_vm',
    stopping: 'wait',
    failed: 'dismiss_vm',
    gone: 'finish',
  },
  terminated: {
    absent: 'wait',
    waiting: 'wait',
    launching: 'wait',
    booting: 'wait',
    running: 'wait',
    stopping: 'wait',
    failed: 'wait',
    gone: 'wait',
  },
} as const satisfies Record<InstanceStatus, Tasks>

export function taskOf(status: InstanceStatus, vm: VmState | null): InstanceTask {
  return INSTANCE_TASKS[status][vm ?? 'absent']
}
