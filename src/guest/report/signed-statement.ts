// Statements of this VM, signed with its receipt keys, each with a report over it. Effects: the report device.

import { checkReport, newStatement, type StatementFields } from '../../attest/receipt/new-statement.ts'
import { decodeReceipt, encodeReceipt, type Receipt } from '../../attest/receipt/receipt.ts'
import type { ReceiptKeys } from '../../attest/receipt/receipt-keys.ts'
import { reportDataOf } from '../../attest/receipt/statement.ts'
import { decodeReport } from '../../attest/report/report.ts'
import { present } from '../../base/assert.ts'
import { fromHex, toBase64Url } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import type { SimulatedLaunch } from '../../contract/vm/agent.ts'
import type { GuestEvidence } from '../../contract/vm/agent-responses.ts'
import { type Refusal, refuse } from '../wire.codec.ts'
import type { ReportDevice } from './device.ts'

export type SignerDeps = {
  readonly keys: ReceiptKeys
  /** Pending while the device is searched. */
  readonly device: Promise<ReportDevice | null>
  readonly nowMs: () => number
}

/** Launch facts from the platform; they do not change while the VM lives. */
export type Launch = { readonly measurement: Uint8Array; readonly operatorKey: Uint8Array }

/** In base64url. */
type SignedStatement = Omit<GuestEvidence, 'tpm'>

export class StatementSigner {
  readonly #deps: SignerDeps
  #launch: Launch | null = null

  constructor(deps: SignerDeps) {
    this.#deps = deps
  }

  async platform(): Promise<'snp' | 'none'> {
    return (await this.#deps.device) === null ? 'none' : 'snp'
  }

  /**
   * The launch from the device, or without a device from the host's `simulated`; refuses both or neither. A statement
   * names it, so it comes from an earlier report.
   */
  async launchOf(op: string, simulated: SimulatedLaunch | null): Promise<{ ok: true; launch: Launch } | Refusal> {
    const device = await this.#deps.device
    if (device !== null) {
      if (simulated !== null) return refuse('bad_request', `${op}.simulated: this guest has a report device`)
      this.#launch ??= await reportedLaunch(device)
      return { ok: true, launch: this.#launch }
    }
    if (simulated === null) return refuse('bad_request', `${op}.simulated: this guest has no report device`)
    const { measurement, operatorKey } = simulated
    return { ok: true, launch: { measurement: hexBytes(measurement), operatorKey: hexBytes(operatorKey) } }
  }

  /** Makes and signs a statement. Throws Fault internal if the device fails. */
  async sign(fields: StatementFields): Promise<{ readonly statement: Uint8Array; readonly signed: SignedStatement }> {
    const { keys, nowMs } = this.#deps
    const statement = newStatement(fields, { ...keys, nowMs: nowMs() })
    const signatures = await keys.signStatement(statement)
    const device = await this.#deps.device
    const report = device === null ? null : await device.report(reportDataOf(statement))
    if (report !== null) checkReport(report, reportDataOf(statement), fields)
    const signed = {
      statement: toBase64Url(statement),
      keys: textsOf(keys.publicKeys),
      signatures: textsOf(signatures),
      report: report === null ? null : toBase64Url(report),
    }
    return { statement, signed }
  }
}

/** The receipt in canonical form, if it is over this statement. */
export function readReceipt(
  field: string,
  text: string,
  signed: SignedStatement,
): { readonly ok: true; readonly receipt: Receipt } | Refusal {
  let receipt: Receipt
  try {
    receipt = encodeReceipt(decodeReceipt(text))
  } catch (error) {
    return refuse('bad_request', messageOf(error))
  }
  const { statement, keys, signatures, report } = signed
  const isLast = receipt.statement === statement && isSame(receipt.keys, keys) && isSame(receipt.signatures, signatures)
  if (!isLast) return refuse('bad_request', `${field}: not of the last evidence`)
  if (report !== null && receipt.evidence.report !== report)
    return refuse('bad_request', `${field}: its report differs from that of the last evidence`)
  return { ok: true, receipt }
}

async function reportedLaunch(device: ReportDevice): Promise<Launch> {
  const { measurement, idKeyDigest } = decodeReport(await device.report(new Uint8Array(64)))
  return { measurement, operatorKey: idKeyDigest }
}

export function hexBytes(hex: string): Uint8Array {
  return present(fromHex(hex), 'the schema lets only hexadecimal through')
}

function textsOf<Name extends string>(of: { readonly [Key in Name]: Uint8Array }): { [Key in Name]: string } {
  const entries = Object.entries<Uint8Array>(of).map(([name, bytes]) => [name, toBase64Url(bytes)])
  return Object.fromEntries(entries) as { [Key in Name]: string }
}

function isSame<Name extends string>(a: { readonly [Key in Name]: string }, b: { readonly [Key in Name]: string }) {
  return Object.keys(b).every(name => a[name as Name] === b[name as Name])
}
