// The interface of the VM engine for services, independent of services A, B and C. Pure: types and their Faults.

import type { Receipt } from '../attest/receipt/receipt.ts'
import type { InstanceFailureCode } from '../contract/http/instance.ts'
import type { SignedSnapshot } from '../contract/snapshot.ts'
import type { EgressCount, IdlePoll, IssuedCertificate, SealedClaim, Transfer } from '../contract/vm/agent.ts'
import type { Claimed, IdleAnswer } from '../contract/vm/agent-responses.ts'
import type { Network } from '../contract/vm/network.ts'
import type { Vm, VmNetworkKind, VmState } from '../store/ledger/vm.table.ts'

/** The documented failure codes of VMs. */
export const VM_FAILURE_CODES = [
  'capacity_exhausted',
  'launch_mismatch',
  'boot_failed',
  'boot_timeout',
  'agent_unreachable',
  'network_lost',
  'host_restarted',
  'host_restored',
  'internal',
] as const satisfies readonly InstanceFailureCode[]

/** Why VMs of an earlier boot are gone: this host has rebooted, or its records come from a backup of another. */
export type HostLoss = 'host_restarted' | 'host_restored'

export type VmFailureCode = (typeof VM_FAILURE_CODES)[number]

export type VmView = {
  readonly id: string
  readonly state: VmState
  /** The platform of its QEMU. Null if it has not started yet. */
  readonly platform: Vm['platform']
  /** Routed IPv4 address. Null if it is not assigned yet, was released, or is not IPv4. */
  readonly address: string | null
  /** The same for IPv6. */
  readonly addressV6: string | null
  readonly failureCode: VmFailureCode | null
  /** The failure as a sentence. Null if it has not failed. */
  readonly failureMessage: string | null
  /** When a failed VM last responded. Null if it has not failed. */
  readonly failedAtMs: number | null
  /** The guest's hello. Null if it is not running yet. */
  readonly guest: {
    readonly boxKey: string
    readonly sshHostKey: string | null
    readonly claimId: string | null
  } | null
  /** Whether the firewall passes its traffic. False after a restart of the daemon until that is checked. */
  readonly opened: boolean
}

export type VmSpec = {
  /** Name of an image that the engine has. */
  readonly image: string
  readonly vcpus: number
  readonly memoryMib: number
  /** Size of its scratch disk in GiB. Default: no disk. */
  readonly scratchGib?: number
  /** Size of the disk on which host and guest exchange files, in GiB. Default: no disk. */
  readonly exchangeGib?: number
  /** Network that it reaches once opened. Default: `world`. */
  readonly network?: VmNetworkKind
  /**
   * Text of workload.json, at most `workloadBytesMax` bytes. HOST_DATA becomes its SHA-256, not the launch document's.
   */
  readonly workload?: string
  /** Path of a disk that the VM gets read-only. Default: no disk. */
  readonly modelDisk?: string
  /** PCI addresses of GPUs of this host that are assigned to the VM, only on snp. Default: none. */
  readonly gpus?: readonly string[]
}

/** Fresh evidence of one VM. It is not verified: the caller does that (attest/receipt/verify.ts). */
export type VmEvidence = {
  readonly receipt: Receipt
  /** Text of the launch document, whose SHA-256 is HOST_DATA of the report. */
  readonly launch: string
  /** SHA-384 of the ID key that signed the launch, from this host's records. */
  readonly operatorKey: Uint8Array
  /** Whether the platform is simulated, so that no hardware signed the evidence. */
  readonly simulated: boolean
}

/** Requests to a claimed VM. Faults: channel.*. */
export type GuestRequests = {
  /** Hands in a certificate for a name that the guest answered to `idle`. */
  readonly certificate: (certificate: IssuedCertificate, timeoutMs: number) => Promise<void>
  /**
   * Has it send a snapshot, and returns what it signs once that is sent. `ifChanged`: it refuses as `unchanged` if
   * its last one has this SHA-256 and no file has changed since; only for guests that have answered `isSnapshotDue`.
   */
  readonly snapshot: (
    to: Transfer,
    timeoutMs: number,
    options: { readonly ifChanged?: string },
  ) => Promise<SignedSnapshot>
  /** Has it begin to fetch a ciphertext into the pipe of this name. */
  readonly restore: (from: Transfer, pipe: string, timeoutMs: number) => Promise<void>
}

export type VmEngine = {
  /** Records a new VM (state `waiting`) under the caller's id and begins to start it. No effect if the id exists. */
  readonly define: (vmId: string, spec: VmSpec) => void
  /**
   * Records that a VM must be removed and begins to remove it. No effect if that is already recorded, or there is no
   * such VM.
   */
  readonly dismiss: (vmId: string) => void
  readonly view: (vmId: string) => VmView | null
  /**
   * Sends a running VM its network again (`network`, in force with the claim), then a sealed claim. Faults: channel.*.
   */
  readonly claim: (
    vmId: string,
    sealed: SealedClaim,
    timeoutMs: number,
  ) => Promise<Claimed & { readonly network: Network }>
  /**
   * Returns evidence of a claimed VM over a nonce of 32 bytes. One at a time per VM; a few may wait. Faults: channel.*,
   * attest.unavailable, whose message names what is missing and the remedy.
   */
  readonly evidence: (vmId: string, nonce: Uint8Array, timeoutMs: number) => Promise<VmEvidence>
  /** Sends a VM the receipt of its last evidence, for the verifier inside. Faults: channel.*. */
  readonly handReceipt: (vmId: string, receipt: Receipt, timeoutMs: number) => Promise<void>
  /** Sends a claimed VM the count of its egress, which it shows to its owner. Faults: channel.*. */
  readonly handEgress: (vmId: string, egress: EgressCount, timeoutMs: number) => Promise<void>
  /**
   * Returns whether the idle time of a claimed VM is over by its own count: `minutes`, unless its owner has ordered
   * another; and whether a snapshot is due by the owner's schedule. Faults: channel.*.
   */
  readonly pollIdle: (vmId: string, poll: IdlePoll, timeoutMs: number) => Promise<IdleAnswer>
  /** Returns the requests to an attached VM. Throws Fault channel.closed if it is not attached. */
  readonly guest: (vmId: string) => GuestRequests
  /** Makes the firewall pass a VM's traffic permanently; `VmView.opened` becomes true once it does. Idempotent. */
  readonly open: (vmId: string) => void
  /** Calls `listener` with the id of every VM whose state has changed. */
  readonly onChange: (listener: (vmId: string) => void) => void
}
