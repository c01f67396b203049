// What the host's side of the gateway VM needs of the engine and of the appliance. Types only.

import type { ReceiptEvidence } from '../attest/receipt/receipt.ts'
import type { CompletedEvidence, EnclaveNext, EnclaveReport } from '../contract/enclave.ts'
import type { VmEngine } from '../vm/engine.ts'
import type { RecordedLaunch } from '../vm/launch-policy.plan.ts'

/** Where the firewall sends the gateway's clients, and what the gateway reaches. */
export type GatewayRoute = {
  /** Null: nobody is served. */
  readonly serving: string | null
  readonly upstreams: readonly { readonly address: string; readonly port: number }[]
}

export type NextAsked = { readonly known: readonly string[]; readonly booked: number; readonly waitMs: number }

/** Every request's Faults: channel.timeout, channel.refused (the message begins with the guest's code), channel.closed. */
export type GatewayEngine = Pick<VmEngine, 'define' | 'dismiss' | 'view' | 'onChange' | 'open'> & {
  /** Hands a document over, in pieces. */
  readonly document: (vmId: string, name: 'workload' | 'control', bytes: Uint8Array, timeoutMs: number) => Promise<void>
  /** The document is to be in force: it is the one that the VM was launched for. */
  readonly workload: (vmId: string, sha256: string, timeoutMs: number) => Promise<void>
  /** Resolves to the revision in force. */
  readonly control: (
    vmId: string,
    snapshot: { readonly sha256: string; readonly signature: string },
    timeoutMs: number,
  ) => Promise<number>
  readonly addresses: (
    vmId: string,
    hosts: Readonly<Record<string, readonly string[]>>,
    timeoutMs: number,
  ) => Promise<void>
  readonly next: (vmId: string, asked: NextAsked, timeoutMs: number) => Promise<EnclaveNext>
  readonly evidenceFor: (
    vmId: string,
    answer: { readonly want: string; readonly evidence: CompletedEvidence | null; readonly problem: string | null },
    timeoutMs: number,
  ) => Promise<void>
  readonly certificateFor: (
    vmId: string,
    answer: { readonly want: string; readonly clients: string; readonly guests: string },
    timeoutMs: number,
  ) => Promise<void>
  readonly report: (vmId: string, logFrom: number, timeoutMs: number) => Promise<EnclaveReport>
  readonly drain: (vmId: string, timeoutMs: number) => Promise<void>
  /**
   * The report over `reportData` with its certificates; `report` is the VM's own, null where the simulated platform makes it. Faults beside:
   * attest.unavailable.
   */
  readonly completeEvidence: (
    vmId: string,
    asked: { readonly reportData: Uint8Array; readonly report: string | null },
  ) => Promise<ReceiptEvidence>
  /** Text of the workload.json that it is launched for. Fault internal: it has none. */
  readonly workloadOf: (vmId: string) => string
  /** What it was launched from. Fault attest.unavailable. */
  readonly launch: (vmId: string) => RecordedLaunch
  /** Idempotent; resolves when the firewall has it. Faults: host.command_failed, host.command_timeout. */
  readonly route: (route: GatewayRoute) => Promise<void>
}

/** Certificates for a key that never leaves its VM. `csr`: PKCS #10, DER. Fault internal, invalid_request (not a request, or not signed by its key). */
export type Certify = (csr: Uint8Array) => Promise<{ readonly clients: string; readonly guests: string }>
