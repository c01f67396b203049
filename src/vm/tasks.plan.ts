// A service's next step for each state of its VM, defined by phases of a VM's life. Pure.

import type { VmState } from '../store/ledger/vm.table.ts'

/** `absent`: the ledger has no such VM, because it is not created yet or was purged. */
export type TasksByVm<Task> = { readonly [vm in VmState | 'absent']: Task }

/** `starting`: not running yet. `ending`: stopping, or ended. */
type Phases<Task> = { readonly [phase in 'absent' | 'starting' | 'running' | 'ending']: Task }

export function tasksByVm<const Task>({ absent, starting, running, ending }: Phases<Task>): TasksByVm<Task> {
  return {
    absent,
    waiting: starting,
    launching: starting,
    booting: starting,
    running,
    stopping: ending,
    failed: ending,
    gone: ending,
  }
}

/** Returns the same step for every state. */
export function always<const Task>(task: Task): TasksByVm<Task> {
  return tasksByVm({ absent: task, starting: task, running: task, ending: task })
}
