// States of a VM as data. Pure. An absent cell is a refusal.
//
// Work belongs to states, not to transitions: after a crash only the state is known, so each state's work can be begun again
// at any point of it, and is finished when the work itself says so.

import { INSTANCE_FAILURES } from '../../contract/http/instance.ts'
import type { VmState } from '../../store/ledger/vm.table.ts'
import { VM_FAILURE_CODES, type VmFailureCode } from '../engine.ts'

export type VmEvent =
  /** There is room and a turn: address and capacity are reserved. */
  | 'admitted'
  /** No room within the configured time. */
  | 'refused'
  /** QEMU runs, paused, with all its sockets. */
  | 'spawned'
  | 'spawn_failed'
  /** What QEMU was to load is not what this host expects. QEMU was not started. */
  | 'launch_mismatch'
  /** The agent has said who it is and has its address. */
  | 'greeted'
  | 'deadline'
  /** The QEMU process is no more. */
  | 'qemu_gone'
  /** The guest has powered off, or its kernel has given up; QEMU holds it paused. */
  | 'guest_stopped'
  /** QEMU, or agent and SSH together, have not answered for minutes. */
  | 'unanswered'
  /** Its network interface is gone. A new one cannot be given to a running QEMU. */
  | 'network_lost'
  | 'dismissed'
  /** Nothing of it is left on the host. */
  | 'released'

/** One thing to do for a VM. It says which event it has come to, or null: go on to the state's next work, or wait. */
export type VmWork =
  /** Reserve room and an address. */
  | 'admit'
  /** Make everything up to a paused QEMU. */
  | 'build'
  /** Give up on a boot that takes too long. */
  | 'check_deadline'
  /** Connect to QEMU's sockets. */
  | 'attach'
  /** Ask the agent who it is, and give it its address. */
  | 'greet'
  /** Let it run again where QEMU paused it for want of disk space, and there is some. */
  | 'resume'
  /** Bound what QEMU has written to its log. */
  | 'bound_log'
  /** See whether the guest still runs and answers, and what it says of itself. */
  | 'watch'
  /** Let its traffic through, once that is wanted. */
  | 'open'
  /** Ask the guest to stop, within the grace period. */
  | 'power_down'
  /** End QEMU and undo the resource ledger, newest entry first. */
  | 'release'

type Row = {
  /** In order, each time that the VM is looked at. */
  readonly work: readonly VmWork[]
  readonly on: { readonly [event in VmEvent]?: VmState }
}

/** What each state asks for, and where each event leads. */
export const VM_TABLE = {
  waiting: { work: ['admit'], on: { admitted: 'launching', refused: 'failed', dismissed: 'gone' } },
  launching: {
    work: ['build'],
    on: { spawned: 'booting', spawn_failed: 'failed', launch_mismatch: 'failed', dismissed: 'stopping' },
  },
  booting: {
    work: ['check_deadline', 'attach', 'resume', 'greet'],
    on: {
      greeted: 'running',
      deadline: 'failed',
      qemu_gone: 'failed',
      guest_stopped: 'failed',
      dismissed: 'stopping',
    },
  },
  running: {
    work: ['bound_log', 'attach', 'resume', 'watch', 'open'],
    on: {
      qemu_gone: 'failed',
      guest_stopped: 'failed',
      unanswered: 'failed',
      network_lost: 'failed',
      dismissed: 'stopping',
    },
  },
  failed: { work: ['release'], on: { dismissed: 'stopping' } },
  stopping: { work: ['power_down', 'release'], on: { released: 'gone' } },
  gone: { work: [], on: {} },
} as const satisfies Record<VmState, Row>

/** The state that an event leads to, or null where it means nothing. */
export function next(state: VmState, event: VmEvent): VmState | null {
  const { on }: Row = VM_TABLE[state]
  return on[event] ?? null
}

/** The code of a failure, by the event and the state in which it came. */
export function failureOf(state: VmState, event: VmEvent, hostRestarted: boolean): VmFailureCode {
  if (event === 'refused') return 'capacity_exhausted'
  if (hostRestarted) return 'host_restarted'
  if (event === 'launch_mismatch') return 'launch_mismatch'
  if (event === 'deadline') return 'boot_timeout'
  if (event === 'network_lost') return 'network_lost'
  return state === 'running' ? 'agent_unreachable' : 'boot_failed'
}

/** The sentence of a failure; of a launch that was refused also the parts in question. */
export function failureMessage(code: VmFailureCode, mismatch: string | null | undefined): string {
  const sentence = INSTANCE_FAILURES[code]
  return code === 'launch_mismatch' && mismatch ? sentence.replace(/\.$/, `: ${mismatch}.`) : sentence
}

/** A code that an older or newer executable wrote and this one does not know is shown as `internal`. */
export function knownFailure(code: string | null): VmFailureCode | null {
  if (code === null) return null
  return VM_FAILURE_CODES.find(known => known === code) ?? 'internal'
}

export const SILENCES: ReadonlySet<VmEvent> = new Set<VmEvent>(['unanswered', 'network_lost'])
/** What the end of the host may look like from here. */
export const LOSSES: ReadonlySet<VmEvent> = new Set<VmEvent>([
  'spawn_failed',
  'deadline',
  'qemu_gone',
  'guest_stopped',
  'unanswered',
  'network_lost',
])
