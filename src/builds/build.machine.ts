// States of a build as data (contract 3.2). Pure. A missing cell rejects the event.

import type { BuildState } from '../contract/http/build.ts'
import type { VmState } from '../store/ledger/vm.table.ts'
import { always, type TasksByVm, tasksByVm } from '../vm/tasks.plan.ts'

export type BuildEvent =
  /** A host has claimed it, and gives it a VM. */
  | 'claimed'
  /** The host has no room for its VM, or its source is unavailable: it returns to the queue. */
  | 'no_room'
  /** The guest has received its order. */
  | 'ordered'
  /** The result is complete, and its evidence passed verification. */
  | 'finished'
  | 'broken'
  | 'cancelled'

type Row = { readonly [event in BuildEvent]?: BuildState }

export const BUILD_TABLE = {
  queued: { claimed: 'starting', broken: 'failed', cancelled: 'cancelled' },
  starting: { no_room: 'queued', ordered: 'running', broken: 'failed', cancelled: 'cancelled' },
  running: { finished: 'ok', broken: 'failed', cancelled: 'cancelled' },
  ok: {},
  failed: {},
  cancelled: {},
} as const satisfies Record<BuildState, Row>

export function nextState(state: BuildState, event: BuildEvent): BuildState | null {
  const row: Row = BUILD_TABLE[state]
  return row[event] ?? null
}

/** Next step of a build; safe to repeat. */
export type BuildTask =
  | 'wait'
  /** Create its VM, with the id in its row. */
  | 'define_vm'
  /** Send source and order. */
  | 'order'
  /** Follow it until it ends. */
  | 'follow'
  | 'fail_with_vm'
  /** Dismiss its VM and complete its events. */
  | 'close'

/** Tasks by the state of the build's VM. */
export const BUILD_TASKS = {
  // The queue decides when it starts.
  queued: always('wait'),
  starting: tasksByVm({ absent: 'define_vm', starting: 'wait', running: 'order', ending: 'fail_with_vm' }),
  // A VM never returns to an earlier state. Even if it did, its messages would be checked as usual.
  running: tasksByVm({ absent: 'fail_with_vm', starting: 'wait', running: 'follow', ending: 'fail_with_vm' }),
  ok: always('close'),
  failed: always('close'),
  cancelled: always('close'),
} as const satisfies Record<BuildState, TasksByVm<BuildTask>>

export function taskOf(state: BuildState, vm: VmState | null): BuildTask {
  return BUILD_TASKS[state][vm ?? 'absent']
}
