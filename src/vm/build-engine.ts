// The part of the VM engine that only service C uses. Pure: types and their Faults.

import type { AttestedStage, BuildProgress } from '../contract/vm/build-agent.ts'
import type { BuildOrder } from '../contract/vm/build-order.ts'
import type { VmEngine, VmEvidence } from './engine.ts'

/** The stage that the guest waits at, and the build's nonce. */
export type VouchWanted = { readonly stage: AttestedStage; readonly nonce: Uint8Array }

/** Checks and records evidence before the guest gets it. If it returns false, the guest gets nothing. */
export type AcceptEvidence = (evidence: VmEvidence) => boolean | Promise<boolean>

/** Faults of requests: channel.timeout, channel.refused (its message begins with the guest's code), channel.closed. */
export type BuildEngine = Pick<VmEngine, 'define' | 'dismiss' | 'view' | 'onChange' | 'open'> & {
  /** Path of the VM's exchange disk on this host, accessible only to root. It exists from the state `running` on. */
  readonly exchange: (vmId: string) => string
  /** SHA-256 of the verification summary of the VM's image, hexadecimal. Null if it no longer exists. */
  readonly imageSummary: (vmId: string) => string | null
  readonly order: (vmId: string, order: BuildOrder, timeoutMs: number) => Promise<void>
  /** Returns log lines from `from` on, and the pending request of the guest. */
  readonly progress: (vmId: string, from: number, timeoutMs: number) => Promise<BuildProgress>
  /**
   * Completes the evidence of the pending stage, and sends it to the guest once `accept` returns true. The evidence
   * is complete, not verified. Further Fault: attest.unavailable, whose message names what is missing and the remedy.
   */
  readonly vouch: (vmId: string, wanted: VouchWanted, accept: AcceptEvidence, timeoutMs: number) => Promise<void>
  readonly cancel: (vmId: string, timeoutMs: number) => Promise<void>
  /** Makes the firewall drop all packets of the VM permanently. Idempotent; no effect on a VM that was never opened. */
  readonly close: (vmId: string) => void
}
