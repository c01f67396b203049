// Requests to gateway VMs (contract/vm/enclave.ts), and their evidence. Effects: calls guests, reads the ledger.
//
// The guest is hostile: its requests are compared with its launch before any work is done for it. Results are complete,
// not verified, and of its usage only the form is checked.

import type { ReceiptEvidence } from '../../attest/receipt/receipt.ts'
import { toBase64, toBase64Url, toHex, utf8 } from '../../base/bytes.ts'
import { Fault } from '../../base/fault.ts'
import { createSerial, type Serial } from '../../base/work/serial.ts'
import { checkValue } from '../../contract/check.ts'
import { CompletedEvidence, documentBytesMax, type EnclaveRequest, pieceBytesMax } from '../../contract/vm/enclave.ts'
import type { EnclaveNext, EnclaveReport, EnclaveSpans, HostRequest } from '../../contract/vm/enclave-responses.ts'
import { type AgentOperation, type AgentSuccess, ask, type ChannelLimits } from '../../host/qemu/agent-channel.ts'
import type { LedgerDb } from '../../store/db.ts'
import { hostDataOf } from '../launch/expected.plan.ts'
import type { VmLink } from '../link.driver.ts'
import {
  attached,
  completeReport,
  type EvidenceSources,
  evidenceBytes,
  type Launched,
  launchedVm,
  ledgerHex,
  refusedEvidence,
  simulatedLaunch,
} from './report.driver.ts'

/** Higher, because a gateway under load sends its usage and waits for certificates while further requests arrive. */
export const gatewayVmChannelLimits: ChannelLimits = { readBytesPerSecondMax: 4_194_304, pendingCountMax: 32 }

export type GatewayVmRequestsDeps = {
  readonly db: LedgerDb
  readonly sources: EvidenceSources
  readonly linkOf: (vmId: string) => Pick<VmLink, 'channel'> | null
}

type RequestOf<Op extends EnclaveRequest['op']> = Omit<Extract<EnclaveRequest, { op: Op }>, 'id' | 'op'>
type Lowered = { readonly nanoUsd: number; readonly tokens: number } | null
type TellOperation = Extract<
  AgentOperation,
  {
    op:
      | 'addresses'
      | 'evidence_for'
      | 'certificate_for'
      | 'certificates'
      | 'spent_for'
      | 'days_for'
      | 'shares_for'
      | 'drain'
  }
>
type DocumentKind = keyof typeof documentBytesMax
type DocumentOperation = Extract<AgentOperation, { op: DocumentKind }>

/**
 * Maximum per VM: one being sent, and those that wait. No share: limits each VM, and only the daemon sends documents.
 */
const documentsWaitingMax = 4

/** The report for which a gateway VM requests certificates. */
export type WantedEvidence = Pick<Extract<HostRequest, { kind: 'evidence' }>, 'reportData' | 'report'>

/** Complete evidence, not verified. */
export type GatewayVmEvidence = {
  /** The form sent to the VM. */
  readonly evidence: CompletedEvidence
  /** Text of the launch document. */
  readonly launch: string
  /** Text of workload.json, whose SHA-256 is HOST_DATA of the report. */
  readonly workload: string
  /** SHA-384 of the ID key that signed the launch, from this host's records. */
  readonly operatorKey: Uint8Array
  /** Whether the platform is simulated, so that no hardware signed the evidence. */
  readonly simulated: boolean
}

/** Faults of requests: channel.timeout, channel.refused (its message begins with the guest's code), channel.closed. */
export class GatewayVmRequests {
  readonly #deps: GatewayVmRequestsDeps
  /** Serializes documents to a VM, because the pieces of two documents would mix. */
  readonly #documents = new Map<string, Serial>()

  constructor(deps: GatewayVmRequestsDeps) {
    this.#deps = deps
  }

  /**
   * Sends the workload that the VM was launched with. No effect if the VM has it. `timeoutMs` applies to each message,
   * as in `control`. Further Faults: attest.unavailable (no record of the launch).
   */
  async workload(vmId: string, timeoutMs: number): Promise<void> {
    const launched = launchedVm(this.#deps.db, vmId)
    const bytes = utf8(workloadOf(launched))
    const own = simulatedLaunch(launched)
    const simulated = own === null ? null : { ...own, hostData: launched.launch.hostData }
    await this.#document(vmId, bytes, { op: 'workload', sha256: sha256Of(bytes), simulated }, timeoutMs)
  }

  /** Sends a control snapshot as its signed bytes. Returns the revision in force afterwards. */
  async control(
    vmId: string,
    { bytes, signature }: { readonly bytes: Uint8Array; readonly signature: Uint8Array },
    timeoutMs: number,
  ): Promise<number> {
    const operation = { op: 'control', sha256: sha256Of(bytes), signature: toBase64Url(signature) } as const
    const response = await this.#document(vmId, bytes, operation, timeoutMs)
    if (!('revision' in response)) throw new Fault('channel.refused', 'agent control: a response without a revision')
    return response.revision
  }

  /** Sends a request whose response is empty. */
  async tell(vmId: string, operation: TellOperation, timeoutMs: number): Promise<void> {
    await this.#request(vmId, operation, timeoutMs)
  }

  /**
   * Requests what the VM has next. The VM may answer at once each time, so the caller limits the rate. `timeoutMs` must
   * exceed `waitMs`.
   */
  next(vmId: string, asked: RequestOf<'next'>, timeoutMs: number): Promise<EnclaveNext> {
    return ask(this.#channelOf(vmId), { op: 'next', ...asked }, 'next', timeoutMs)
  }

  report(vmId: string, asked: RequestOf<'report'>, timeoutMs: number): Promise<EnclaveReport> {
    return ask(this.#channelOf(vmId), { op: 'report', ...asked }, 'report', timeoutMs)
  }

  /** Requests spans; checks their form, not their content. */
  spans(vmId: string, asked: RequestOf<'spans'>, timeoutMs: number): Promise<EnclaveSpans> {
    return ask(this.#channelOf(vmId), { op: 'spans', ...asked }, 'traced', timeoutMs)
  }

  /** Lowers a budget. Returns the part that the VM keeps; null if it has lowered nothing. */
  lower(vmId: string, scope: RequestOf<'lower'>, timeoutMs: number): Promise<Lowered> {
    return ask(this.#channelOf(vmId), { op: 'lower', ...scope }, 'kept', timeoutMs)
  }

  /**
   * Completes the report over these bytes with its certificates. A report of another launch or workload is refused
   * before the key distribution service is called. Faults: channel.refused, attest.unavailable (the message names what
   * is missing and the remedy).
   */
  async completeEvidence(
    vmId: string,
    { reportData, report: guestReport }: WantedEvidence,
  ): Promise<GatewayVmEvidence> {
    const launched = launchedVm(this.#deps.db, vmId)
    const { vm, launch } = launched
    const workload = workloadOf(launched)
    const completed = await completeReport(this.#deps.sources, launched, {
      guestReport,
      reportData: evidenceBytes(reportData, 'reportData'),
    })
    return {
      evidence: wireEvidence(vmId, completed),
      launch: launch.document,
      workload,
      operatorKey: ledgerHex(launch.operatorKey),
      simulated: vm.platform !== 'snp',
    }
  }

  /** Sends a whole document in pieces, then the request that uses it. */
  async #document(
    vmId: string,
    bytes: Uint8Array,
    operation: DocumentOperation,
    timeoutMs: number,
  ): Promise<AgentSuccess> {
    const { op: document } = operation
    const what = `${document} for VM ${vmId}`
    const bytesMax = documentBytesMax[document]
    if (bytes.length > bytesMax)
      throw new Fault('channel.refused', `${what}: ${bytes.length} bytes, at most ${bytesMax}`)
    const turns = this.#documents.get(vmId) ?? createSerial()
    if (turns.size() >= documentsWaitingMax) {
      throw new Fault('channel.refused', `${what}: ${documentsWaitingMax} documents wait already`)
    }
    this.#documents.set(vmId, turns)
    const turn = turns.run(async () => {
      for (let offset = 0; offset < bytes.length; offset += pieceBytesMax) {
        const piece = toBase64(bytes.subarray(offset, offset + pieceBytesMax))
        await this.#request(vmId, { op: 'piece', document, offset, bytes: piece }, timeoutMs)
      }
      return await this.#request(vmId, operation, timeoutMs)
    })
    try {
      return await turn
    } finally {
      if (turns.size() === 0 && this.#documents.get(vmId) === turns) this.#documents.delete(vmId)
    }
  }

  async #request(vmId: string, operation: AgentOperation, timeoutMs: number): Promise<AgentSuccess> {
    return await this.#channelOf(vmId).request(operation, timeoutMs)
  }

  #channelOf(vmId: string): VmLink['channel'] {
    return attached(vmId, this.#deps.linkOf(vmId)).channel
  }
}

function sha256Of(bytes: Uint8Array): string {
  return new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
}

/**
 * Returns the VM's workload. Throws Fault attest.unavailable if it was launched without one, or the record was altered.
 */
function workloadOf({ vm, launch }: Launched): string {
  const { document, workload } = launch
  if (workload === null) {
    throw new Fault('attest.unavailable', `VM ${vm.id} was launched without a workload: it is no gateway's`)
  }
  if (toHex(hostDataOf({ document, workload })) !== launch.hostData) {
    throw new Fault(
      'attest.unavailable',
      `VM ${vm.id}: the workload on record is not the one that it was launched with`,
    )
  }
  return workload
}

/**
 * Converts evidence to its form on the wire. Throws Fault channel.refused if it exceeds the bounds of the wire, because
 * it would be useless.
 */
function wireEvidence(
  vmId: string,
  { report, vek, chain: [intermediate, ark], crl }: ReceiptEvidence,
): CompletedEvidence {
  const result = checkValue(CompletedEvidence, {
    report: toBase64Url(report),
    vek: toBase64Url(vek),
    chain: [toBase64Url(intermediate), toBase64Url(ark)],
    ...(crl === undefined ? {} : { crl: toBase64Url(crl) }),
  })
  if (!result.ok) throw refusedEvidence(vmId, result.problem)
  return result.value
}
