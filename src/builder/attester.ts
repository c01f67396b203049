// The evidence of this VM's one build: two statements that its receipt keys sign, one before any source code runs, one when all is done, and a
// report over each. Effects: the report device.
//
// What is signed is what the guest has found itself. Of the host's words it has the job's name, the nonce, the digest of the whole order with
// what in it opens a fetch, and, where there is no report device, the launch that no hardware vouches for.

import { createHash } from 'node:crypto'
import { evidenceBytes, familyReportData, type SnpEvidence } from '../attest/provenance/evidence.ts'
import { checkReport, newStatement, type StatementFields } from '../attest/receipt/issue.ts'
import { decodeReceipt, encodeReceipt, type Receipt } from '../attest/receipt/receipt.ts'
import type { ReceiptKeys } from '../attest/receipt/receipt-keys.ts'
import { reportDataOf, type StatementOf } from '../attest/receipt/statement.ts'
import { decodeReport } from '../attest/report/report.ts'
import { equalConstantTime, fromBase64Url, fromHex, toBase64Url } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import type { SimulatedLaunch } from '../contract/vm/agent.ts'
import type { AttestedStage, BuildEvidence } from '../contract/vm/build-agent.ts'
import type { ReportDevice } from '../guest/report/device.ts'
import { ok, type Refusal, refuse } from '../guest/wire.codec.ts'

export type Dispatch = {
  readonly stage: 'dispatch'
  readonly jobId: string
  readonly nonce: Uint8Array
  /** 32 bytes: the source's tree id in git's SHA-256 object format. */
  readonly sourceDigest: Uint8Array
  readonly networkPolicy: string
  readonly order: OrderWords
}
/** Of the host's order: its digest, and what opens a fetch in clear. */
export type OrderWords = Pick<
  StatementOf<'build-dispatch'>,
  'orderDigest' | 'fetchProxy' | 'fetchMirror' | 'fetchAuthoritiesDigest'
>
export type Completion = Omit<Dispatch, 'stage' | 'jobId' | 'order'> & {
  readonly stage: 'completion'
  /** 32 bytes. */
  readonly provenanceDigest: Uint8Array
}
export type Stage = Dispatch | Completion

/** Certificates and report over the provenance, as the host hands them. */
export type VouchedProvenance = {
  readonly report: string
  readonly vek: string
  readonly ask: string
  readonly ark: string
}

type Launch = { readonly measurement: Uint8Array; readonly operatorKey: Uint8Array }

export type AttesterDeps = {
  readonly keys: ReceiptKeys
  /** May not be found yet. */
  readonly device: Promise<ReportDevice | null>
  readonly imageName: string
  readonly nowMs: () => number
}

export class Attester {
  readonly #deps: AttesterDeps
  #launch: Launch | null = null
  #dispatchDigest: Uint8Array | null = null
  #last: { readonly stage: Stage; readonly evidence: BuildEvidence } | null = null
  readonly #receipts: { dispatch?: Receipt; completion?: Receipt } = {}
  #provenance: SnpEvidence | null = null

  constructor(deps: AttesterDeps) {
    this.#deps = deps
  }

  async platform(): Promise<'snp' | 'none'> {
    return (await this.#deps.device) === null ? 'none' : 'snp'
  }

  /** Hexadecimal; known from the first evidence on. */
  measurement(): string {
    if (this.#launch === null) throw new Error('invariant broken: the measurement is read before the first evidence')
    return Buffer.from(this.#launch.measurement).toString('hex')
  }

  /** Fault internal when the device fails. */
  async make(stage: Stage, simulated: SimulatedLaunch | null): Promise<{ ok: true; vouched: BuildEvidence } | Refusal> {
    const { keys, nowMs } = this.#deps
    const device = await this.#deps.device
    if (device !== null && simulated !== null)
      return refuse('bad_request', 'vouch.simulated: this guest has a report device')
    if (device === null && simulated === null)
      return refuse('bad_request', 'vouch.simulated: this guest has no report device')
    const launch = await this.#launchOf(device, simulated)
    const fields = this.#fieldsOf(stage, launch)
    const statement = newStatement(fields, { ...keys, nowMs: nowMs() })
    const signatures = await keys.signStatement(statement)
    const report = device === null ? null : await device.report(reportDataOf(statement))
    if (report !== null) checkReport(report, reportDataOf(statement), fields)
    const evidence: BuildEvidence = {
      stage: stage.stage,
      statement: toBase64Url(statement),
      keys: textsOf(keys.publicKeys),
      signatures: textsOf(signatures),
      report: report === null ? null : toBase64Url(report),
      provenance: await provenanceReport(stage, device),
    }
    if (stage.stage === 'dispatch') this.#dispatchDigest = createHash('sha256').update(statement).digest()
    this.#last = { stage, evidence }
    return { ok: true, vouched: evidence }
  }

  /** Keeps what the host has completed, when it is about the last evidence. */
  keep(stage: AttestedStage, text: string, provenance: VouchedProvenance | null): { ok: true } | Refusal {
    if (this.#last === null || this.#last.stage.stage !== stage)
      return refuse('unclaimed', 'vouched: no evidence of this stage was asked for')
    const { evidence } = this.#last
    let receipt: Receipt
    try {
      receipt = encodeReceipt(decodeReceipt(text))
    } catch (error) {
      return refuse('bad_request', messageOf(error))
    }
    const isLast =
      receipt.statement === evidence.statement &&
      isSame(receipt.keys, evidence.keys) &&
      isSame(receipt.signatures, evidence.signatures)
    if (!isLast) return refuse('bad_request', 'vouched.receipt: not of the last evidence')
    if (evidence.report !== null && receipt.evidence.report !== evidence.report) {
      return refuse('bad_request', 'vouched.receipt: another report than that of the last evidence')
    }
    const problem = this.#provenanceProblem(this.#last, provenance)
    if (problem !== null) return refuse('bad_request', `vouched.provenance: ${problem}`)
    this.#receipts[stage] = receipt
    if (provenance !== null) {
      const { report, vek, ask, ark } = provenance
      this.#provenance = { report: bytesOf(report), vek: bytesOf(vek), ask: bytesOf(ask), ark: bytesOf(ark) }
    }
    return ok
  }

  /** Exact bytes of evidence.json, when both stages are kept. */
  evidenceFile(): Uint8Array {
    const { dispatch, completion } = this.#receipts
    if (dispatch === undefined || completion === undefined) throw new Error('invariant broken: a receipt is missing')
    return evidenceBytes({ platform: completion.platform, evidence: this.#provenance, dispatch, completion })
  }

  /** A report of the provenance that is not about it would make evidence.json a lie. */
  #provenanceProblem(
    { stage, evidence }: { stage: Stage; evidence: BuildEvidence },
    given: VouchedProvenance | null,
  ): string | null {
    if ((evidence.provenance === null) !== (given === null)) return 'there, or missing, against the evidence'
    if (given === null || stage.stage !== 'completion') return null
    if (evidence.provenance?.report !== null && evidence.provenance?.report !== given.report)
      return 'another report than that of the evidence'
    const expected = familyReportData(stage.provenanceDigest, stage.nonce)
    try {
      const { reportData } = decodeReport(bytesOf(given.report))
      return expected !== null && equalConstantTime(reportData, expected) ? null : 'a report over other data'
    } catch (error) {
      return messageOf(error)
    }
  }

  async #launchOf(device: ReportDevice | null, simulated: SimulatedLaunch | null): Promise<Launch> {
    if (device !== null) {
      if (this.#launch === null) {
        const report = decodeReport(await device.report(new Uint8Array(64)))
        this.#launch = { measurement: report.measurement, operatorKey: report.idKeyDigest }
      }
      return this.#launch
    }
    if (simulated === null) throw new Error('invariant broken: neither device nor simulation')
    this.#launch = { measurement: hexOf(simulated.measurement), operatorKey: hexOf(simulated.operatorKey) }
    return this.#launch
  }

  #fieldsOf(stage: Stage, launch: Launch): StatementFields {
    const { nonce, sourceDigest, networkPolicy } = stage
    const common = {
      nonce,
      sourceDigest,
      networkPolicy,
      operatorKey: launch.operatorKey,
      image: { name: this.#deps.imageName, measurement: launch.measurement },
    }
    if (stage.stage === 'dispatch') return { kind: 'build-dispatch', jobId: stage.jobId, ...stage.order, ...common }
    if (this.#dispatchDigest === null) throw new Error('invariant broken: completion before dispatch')
    return { kind: 'build', dispatchDigest: this.#dispatchDigest, provenanceDigest: stage.provenanceDigest, ...common }
  }
}

async function provenanceReport(stage: Stage, device: ReportDevice | null): Promise<BuildEvidence['provenance']> {
  if (stage.stage !== 'completion') return null
  const data = familyReportData(stage.provenanceDigest, stage.nonce)
  if (data === null) return null
  const report = device === null ? null : await device.report(data)
  return {
    sha256: Buffer.from(stage.provenanceDigest).toString('hex'),
    report: report === null ? null : toBase64Url(report),
  }
}

function textsOf<Name extends string>(of: { readonly [Key in Name]: Uint8Array }): { [Key in Name]: string } {
  const entries = Object.entries<Uint8Array>(of).map(([name, bytes]) => [name, toBase64Url(bytes)])
  return Object.fromEntries(entries) as { [Key in Name]: string }
}

function isSame<Name extends string>(
  a: { readonly [Key in Name]: string },
  b: { readonly [Key in Name]: string },
): boolean {
  return Object.keys(b).every(name => a[name as Name] === b[name as Name])
}

function bytesOf(text: string): Uint8Array {
  const bytes = fromBase64Url(text)
  if (bytes === null) throw new Error('vouched.provenance: not canonical base64url')
  return bytes
}

function hexOf(text: string): Uint8Array {
  const bytes = fromHex(text)
  if (bytes === null) throw new Error('invariant broken: the schema lets only hexadecimal through')
  return bytes
}
