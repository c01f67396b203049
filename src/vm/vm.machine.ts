// States of a VM as data. Pure. An absent cell is a refusal.
//
// Work belongs to states, not to transitions: after a crash only the state is known, so each state's work can be begun again
// at any point of it, and is finished when the work itself says so.

import type { VmState } from '../store/ledger/vm.table.ts'
import type { VmFailureCode } from './engine.ts'

export type VmEvent =
  /** There is room and a turn: address and capacity are reserved. */
  | 'admitted'
  /** No room within the configured time. */
  | 'refused'
  /** QEMU runs, paused, with all its sockets. */
  | 'spawned'
  | 'spawn_failed'
  /** The agent has said who it is and has its address. */
  | 'greeted'
  | 'deadline'
  /** The QEMU process is no more. */
  | 'qemu_gone'
  /** The guest has powered off, or its kernel has given up; QEMU holds it paused. */
  | 'guest_stopped'
  | 'dismissed'
  /** Nothing of it is left on the host. */
  | 'released'

type Row = { readonly [event in VmEvent]?: VmState }

export const VM_TABLE = {
  waiting: { admitted: 'launching', refused: 'failed', dismissed: 'gone' },
  launching: { spawned: 'booting', spawn_failed: 'failed', dismissed: 'stopping' },
  booting: {
    greeted: 'running',
    deadline: 'failed',
    qemu_gone: 'failed',
    guest_stopped: 'failed',
    dismissed: 'stopping',
  },
  running: { qemu_gone: 'failed', guest_stopped: 'failed', dismissed: 'stopping' },
  failed: { dismissed: 'stopping' },
  stopping: { released: 'gone' },
  gone: {},
} as const satisfies Record<VmState, Row>

export type VmWork =
  | 'admit'
  | 'build'
  /** Connect to QEMU's sockets. */
  | 'attach'
  | 'greet'
  | 'watch'
  /** Ask the guest to stop, within the grace period. */
  | 'power_down'
  /** End QEMU and undo the ledger, newest entry first. */
  | 'release'

export const VM_WORK = {
  waiting: ['admit'],
  launching: ['build'],
  booting: ['attach', 'greet'],
  running: ['attach', 'watch'],
  failed: ['release'],
  stopping: ['power_down', 'release'],
  gone: [],
} as const satisfies Record<VmState, readonly VmWork[]>

/** The state that an event leads to, or null where it means nothing. */
export function next(state: VmState, event: VmEvent): VmState | null {
  const row: Row = VM_TABLE[state]
  return row[event] ?? null
}

/** What a failure is called, by the state it struck in. */
export function failureOf(state: VmState, event: VmEvent, hostRestarted: boolean): VmFailureCode {
  if (event === 'refused') return 'capacity_exhausted'
  if (hostRestarted) return 'host_restarted'
  if (event === 'deadline') return 'boot_timeout'
  return state === 'running' ? 'agent_unreachable' : 'boot_failed'
}
