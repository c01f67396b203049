// States of an instance as data (contract 3.1). Pure. A missing cell rejects the event.

import type { InstanceStatus } from '../store/directory/instance.table.ts'
import type { VmState } from '../store/ledger/vm.table.ts'
import { always, type TasksByVm, tasksByVm } from '../vm/tasks.plan.ts'

export type InstanceEvent =
  /** The claim is in force and the readiness probe saw the host key that the agent reported. */
  | 'usable'
  /** Provisioning or the VM itself failed permanently; the failure code gives the reason. */
  | 'broken'
  /** A delete was accepted. */
  | 'deleted'
  /** The host has removed everything of the VM. */
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

/** Next step of an instance; safe to repeat. */
export type InstanceTask =
  | 'wait'
  /** Create its VM, with the id in its row. */
  | 'define_vm'
  /** Claim the VM and probe it. */
  | 'provision'
  | 'fail_with_vm'
  /** Take its VM down. */
  | 'dismiss_vm'
  /** The host has removed everything of the VM: terminate. */
  | 'finish'

/**
 * Tasks by status and state of the VM. Directory row and ledger VM are never written together, so every pair may occur
 * after a crash.
 */
export const INSTANCE_TASKS = {
  provisioning: tasksByVm({ absent: 'define_vm', starting: 'wait', running: 'provision', ending: 'fail_with_vm' }),
  ready: tasksByVm({ absent: 'fail_with_vm', starting: 'wait', running: 'wait', ending: 'fail_with_vm' }),
  // A failed VM is kept, stopped, for its console; one that still runs serves no instance.
  failed: tasksByVm({ absent: 'wait', starting: 'dismiss_vm', running: 'dismiss_vm', ending: 'wait' }),
  terminating: {
    ...tasksByVm({ absent: 'finish', starting: 'dismiss_vm', running: 'dismiss_vm', ending: 'wait' }),
    failed: 'dismiss_vm',
    gone: 'finish',
  },
  terminated: always('wait'),
} as const satisfies Record<InstanceStatus, TasksByVm<InstanceTask>>

export function taskOf(status: InstanceStatus, vm: VmState | null): InstanceTask {
  return INSTANCE_TASKS[status][vm ?? 'absent']
}
