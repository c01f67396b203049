// States of a VM as data. Pure. An absent cell is a refusal.
//
// Work belongs to states, not to transitions: after a crash only the state is known. Each state's work is repeatable at
// any point and reports its own end.

import { INSTANCE_FAILURES } from '../../contract/http/instance.ts'
import type { VmState } from '../../store/ledger/vm.table.ts'
import { type HostLoss, VM_FAILURE_CODES, type VmFailureCode } from '../engine.ts'

export type VmEvent =
  /** Capacity is free and it is the VM's turn: address and capacity are reserved. */
  | 'admitted'
  /** There was no capacity within the configured time. */
  | 'refused'
  /** QEMU runs, paused, with all its sockets. */
  | 'spawned'
  | 'spawn_failed'
  /** The files for QEMU differ from the expected launch. QEMU was not started. */
  | 'launch_mismatch'
  /** The agent has sent its hello and received its address. */
  | 'greeted'
  | 'deadline'
  /** The QEMU process has ended. */
  | 'qemu_gone'
  /** The guest has powered off, or its kernel has panicked; QEMU holds it paused. */
  | 'guest_stopped'
  /** QEMU, or agent and SSH together, have not answered for minutes. */
  | 'unanswered'
  /** The network interface is gone. A running QEMU cannot be given a new one. */
  | 'network_lost'
  | 'dismissed'
  /** Nothing of the VM is left on the host. */
  | 'released'

/** One action for a VM. Returns an event, or null to continue with the state's next work or to wait. */
export type VmWork =
  /** Reserves room and an address. */
  | 'admit'
  /** Creates everything up to a paused QEMU. */
  | 'build'
  /** Gives up on a boot that takes too long. */
  | 'check_deadline'
  /** Connects to QEMU's sockets. */
  | 'attach'
  /** Requests the agent's hello, and assigns its address. */
  | 'greet'
  /** Resumes a VM that QEMU paused for lack of disk space, once there is some. */
  | 'resume'
  /** Bounds the size of QEMU's log. */
  | 'bound_log'
  /** Checks that the guest runs and answers, and reads its hello. */
  | 'watch'
  /** Passes its traffic, once that is requested. */
  | 'open'
  /** Requests the guest to stop, within the grace period. */
  | 'power_down'
  /** Ends QEMU and removes the resources of the ledger, newest entry first. */
  | 'release'

type Row = {
  /** In order, at each check of the VM. */
  readonly work: readonly VmWork[]
  readonly on: { readonly [event in VmEvent]?: VmState }
}

/** The work and the moves of each state. */
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

/** Returns the state that an event leads to. Null if the event has no meaning in this state. */
export function next(state: VmState, event: VmEvent): VmState | null {
  const { on }: Row = VM_TABLE[state]
  return on[event] ?? null
}

/** Returns the failure code of an event in a state. */
export function failureOf(state: VmState, event: VmEvent, hostLoss: HostLoss | null): VmFailureCode {
  if (event === 'refused') return 'capacity_exhausted'
  if (hostLoss !== null) return hostLoss
  if (event === 'launch_mismatch') return 'launch_mismatch'
  if (event === 'deadline') return 'boot_timeout'
  if (event === 'network_lost') return 'network_lost'
  return state === 'running' ? 'agent_unreachable' : 'boot_failed'
}

/** Returns the failure as a sentence; for a refused launch, with the differing parts. */
export function failureMessage(code: VmFailureCode, mismatch: string | null | undefined): string {
  const sentence = INSTANCE_FAILURES[code]
  return code === 'launch_mismatch' && mismatch ? sentence.replace(/\.$/, `: ${mismatch}.`) : sentence
}

/** Returns the code; `internal` for one of an older or newer executable that is unknown here. */
export function knownFailure(code: string | null): VmFailureCode | null {
  if (code === null) return null
  return VM_FAILURE_CODES.find(known => known === code) ?? 'internal'
}

export const SILENCES: ReadonlySet<VmEvent> = new Set<VmEvent>(['unanswered', 'network_lost'])
/** Events that may also result from the host's own shutdown. */
export const LOSSES: ReadonlySet<VmEvent> = new Set<VmEvent>([
  'spawn_failed',
  'deadline',
  'qemu_gone',
  'guest_stopped',
  'unanswered',
  'network_lost',
])
