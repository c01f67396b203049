// What services see of the VM engine, which knows nothing of services A, B or C. Pure: types, and the failures that they may meet.

import type { Receipt } from '../attest/receipt/receipt.ts'
import type { InstanceFailureCode } from '../contract/http/instance.ts'
import type { Claimed, Network, SealedClaim } from '../contract/vm/agent.ts'
import type { Vm, VmNetworkKind, VmState } from '../store/ledger/vm.table.ts'

/** Why a VM failed: those of the documented failure codes that a VM can meet. */
export const VM_FAILURE_CODES = [
  'capacity_exhausted',
  'launch_mismatch',
  'boot_failed',
  'boot_timeout',
  'agent_unreachable',
  'network_lost',
  'host_restarted',
  'internal',
] as const satisfies readonly InstanceFailureCode[]

export type VmFailureCode = (typeof VM_FAILURE_CODES)[number]

export type VmView = {
  readonly id: string
  readonly state: VmState
  /** What its QEMU runs on; null before there is one. */
  readonly platform: Vm['platform']
  /** Routed IPv4 address, null before one is assigned and after release, and where there are none. */
  readonly address: string | null
  /** The same of IPv6. */
  readonly addressV6: string | null
  readonly failureCode: VmFailureCode | null
  /** The sentence of its failure, for people; null unless it has failed. */
  readonly failureMessage: string | null
  /** When it was last known to be well, where it has failed; else null. */
  readonly failedAtMs: number | null
  /** What the guest said of itself; null until it is running. */
  readonly guest: {
    readonly boxKey: string
    readonly sshHostKey: string | null
    readonly claimId: string | null
  } | null
  /** Whether the firewall lets its traffic through. After a restart of the daemon false, until it has seen to that. */
  readonly opened: boolean
}

export type VmSpec = {
  /** Name of an image that the engine was given. */
  readonly image: string
  readonly vcpus: number
  readonly memoryMib: number
  /** Size of its scratch disk; none unless given. */
  readonly scratchGib?: number
  /** Size of the disk over which host and guest hand each other files; none unless given. */
  readonly exchangeGib?: number
  /** What it reaches once it is opened: the world unless given. */
  readonly network?: VmNetworkKind
  /**
   * Canonical text of workload.json: its SHA-256 becomes the HOST_DATA of the launch, in the place of the launch document's. At most
   * `workloadBytesMax` bytes.
   */
  readonly workload?: string
  /** Path of a disk that it gets read-only; none unless given. */
  readonly modelDisk?: string
}

/** Fresh evidence of one VM. Whether it is good, the caller decides (attest/receipt/verify.ts). */
export type VmEvidence = {
  readonly receipt: Receipt
  /** Text of the launch document, whose SHA-256 is HOST_DATA of the report. */
  readonly launch: string
  /** SHA-384 of the ID key that the launch was signed with, as this host has it on record. */
  readonly operatorKey: Uint8Array
  /** No hardware vouches for it. */
  readonly simulated: boolean
}

export type VmEngine = {
  /** Records a new VM (state `waiting`) under an id of the caller's and starts on it. No effect if there is one of this id. */
  readonly define: (vmId: string, spec: VmSpec) => void
  /** Records that a VM is to go and starts on that. No effect if that is recorded already, or if there is no such VM. */
  readonly dismiss: (vmId: string) => void
  readonly view: (vmId: string) => VmView | null
  /** Hands a running VM its network once more, then a sealed claim. `network`: the one that is in force with it. Faults: channel.*. */
  readonly claim: (
    vmId: string,
    sealed: SealedClaim,
    timeoutMs: number,
  ) => Promise<Claimed & { readonly network: Network }>
  /**
   * Evidence of a claimed VM over a nonce of 32 bytes. One at a time for each VM; a few may wait. Faults: channel.*, and
   * attest.unavailable, whose message says what is missing and what to do.
   */
  readonly evidence: (vmId: string, nonce: Uint8Array, timeoutMs: number) => Promise<VmEvidence>
  /** Gives a VM the receipt of its last evidence, for the verifier inside. Faults: channel.*. */
  readonly handReceipt: (vmId: string, receipt: Receipt, timeoutMs: number) => Promise<void>
  /** Has the firewall let a VM's traffic through, for good; `VmView.opened` says when it does. Idempotent. */
  readonly open: (vmId: string) => void
  /** Calls `listener` with the id of every VM whose state has changed. */
  readonly onChange: (listener: (vmId: string) => void) => void
}
