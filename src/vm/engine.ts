// What services see of the VM engine. Types only: the engine knows nothing of services A, B or C.

import type { Claimed, SealedClaim } from '../contract/agent.ts'
import type { Db } from '../store/db.ts'
import type { VmState } from '../store/ledger/vm.table.ts'

/** Why a VM failed; a subset of the documented instance failure codes. */
export const VM_FAILURES = {
  capacity_exhausted: 'There is no room for another instance on this host right now.',
  boot_failed: 'The virtual machine could not be started.',
  boot_timeout: 'The virtual machine did not finish starting in time.',
  agent_unreachable: 'The virtual machine stopped answering.',
  host_restarted: 'The host restarted while the virtual machine was running.',
  internal: 'An unexpected error occurred.',
} as const satisfies Record<string, string>

export type VmFailureCode = keyof typeof VM_FAILURES

export type VmView = {
  readonly id: string
  readonly state: VmState
  /** Routed IPv4 address, null before one is assigned and after release. */
  readonly address: string | null
  readonly failureCode: VmFailureCode | null
  /** What the guest said of itself; null until it is running. */
  readonly guest: { readonly boxKey: string; readonly sshHostKey: string; readonly claimId: string | null } | null
}

export type VmSpec = { readonly image: string; readonly vcpus: number; readonly memoryMib: number }

export type VmEngine = {
  /** Records a new VM (state `waiting`) inside the caller's transaction and returns its id. Nothing happens before `wake`. */
  readonly define: (tx: Db, spec: VmSpec) => string
  /** Records that a VM is to go, inside the caller's transaction. Idempotent. Nothing happens before `wake`. */
  readonly dismiss: (tx: Db, vmId: string) => void
  /** Lets the reconciler look at a VM now. Never throws, never waits. */
  readonly wake: (vmId: string) => void
  readonly view: (vmId: string) => VmView | null
  /** Hands a sealed claim to a running VM. Faults: channel.*. */
  readonly claim: (vmId: string, sealed: SealedClaim, timeoutMs: number) => Promise<Claimed>
  /** Calls `listener` with the id of every VM whose state has changed. */
  readonly onChange: (listener: (vmId: string) => void) => void
}
