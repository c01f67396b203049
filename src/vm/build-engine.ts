// The part of the VM engine that only service C uses. Pure: types and their Faults.

import type { AttestedStage, BuildProgress } from '../contract/vm/build-agent.ts'
import type { BuildOrder } from '../contract/vm/build-order.ts'
import type { VmEngine, VmEvidence } from './engine.ts'

/** The stage that the guest waits at, and the build's nonce. */
export type VouchWanted = { readonly stage: AttestedStage; readonly nonce: Uint8Array }

/** Judges and records evidence before the guest gets it. False: the guest gets nothing. */
export type AcceptEvidence = (evidence: VmEvidence) => boolean | Promise<boolean>

/** Faults of requests: channel.timeout, channel.refused (its message begins with the guest's code), channel.closed. */
export type BuildEngine = Pick<VmEngine, 'define' | 'dismiss' | 'view' | 'onChange' | 'open'> & {
  /** Path of the VM's exchange disk on this host, root's alone. It exists from the state `running` on. */
  readonly exchange: (vmId: string) => string
  /** SHA-256 of the verification summary of the VM's image, hexadecimal. Null: there is none any more. */
  readonly imageSummary: (vmId: string) => string | null
  readonly order: (vmId: string, order: BuildOrder, timeoutMs: number) => Promise<void>
  /** Log lines from `from` on, and what the guest waits for. */
  readonly progress: (vmId: string, from: number, timeoutMs: number) => Promise<BuildProgress>
  /**
   * Completes the evidence of the stage that the guest waits for, and hands it to the guest once `accept` returns true.
   * The evidence is complete, not verified. More Faults: attest.unavailable, whose message says what is missing and
   * what to do.
   */
  readonly vouch: (vmId: string, wanted: VouchWanted, accept: AcceptEvidence, timeoutMs: number) => Promise<void>
  readonly cancel: (vmId: string, timeoutMs: number) => Promise<void>
  /** Makes the firewall drop all packets of the VM for good. Idempotent; no effect on a VM that was never opened. */
  readonly close: (vmId: string) => void
}
