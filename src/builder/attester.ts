// The evidence of this VM's build: two signed statements, one before any source code runs and one after everything has
// ended, each with a report over it. Effects: the report device.
//
// The guest signs its own findings. From the host it accepts only the job's name, the nonce, the digest of the whole
// order with the settings that open a fetch, and, without a report device, the launch that no hardware attests.

import { sha256 } from '../attest/hash.ts'
import { evidenceBytes, familyReportData, type SnpEvidence } from '../attest/provenance/evidence.ts'
import type { StatementFields } from '../attest/receipt/new-statement.ts'
import type { Receipt } from '../attest/receipt/receipt.ts'
import type { StatementOf } from '../attest/receipt/statement.ts'
import { decodeReport } from '../attest/report/report.ts'
import { present } from '../base/assert.ts'
import { equalConstantTime, fromBase64Url, toBase64Url, toHex } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import type { SimulatedLaunch } from '../contract/vm/agent.ts'
import type { AttestedStage, BuildEvidence } from '../contract/vm/build-agent.ts'
import type { ReportDevice } from '../guest/report/device.ts'
import { type Launch, readReceipt, type SignerDeps, StatementSigner } from '../guest/report/signed-statement.ts'
import { ok, type Refusal, refuse } from '../guest/wire.codec.ts'

type Dispatch = {
  readonly stage: 'dispatch'
  readonly jobId: string
  readonly nonce: Uint8Array
  /** The source's tree id in git's SHA-256 object format, 32 bytes. */
  readonly sourceDigest: Uint8Array
  readonly networkPolicy: string
  readonly order: OrderWords
}
/** From the host's order: its digest and, in readable form, the settings of its fetch. */
export type OrderWords = Pick<
  StatementOf<'build-dispatch'>,
  'orderDigest' | 'fetchProxy' | 'fetchMirror' | 'fetchAuthoritiesDigest'
>
type Completion = Omit<Dispatch, 'stage' | 'jobId' | 'order'> & {
  readonly stage: 'completion'
  /** Digest of the provenance, 32 bytes. */
  readonly provenanceDigest: Uint8Array
}
export type Stage = Dispatch | Completion

/** Certificates and report over the provenance, as sent by the host. */
type VouchedProvenance = {
  readonly report: string
  readonly vek: string
  readonly ask: string
  readonly ark: string
}

type AttesterDeps = SignerDeps & { readonly imageName: string }

export class Attester {
  readonly #imageName: string
  readonly #signer: StatementSigner
  readonly #device: Promise<ReportDevice | null>
  #measurement: Uint8Array | null = null
  #dispatchDigest: Uint8Array | null = null
  #last: { readonly stage: Stage; readonly evidence: BuildEvidence } | null = null
  readonly #receipts: { dispatch?: Receipt; completion?: Receipt } = {}
  #provenance: SnpEvidence | null = null

  constructor({ imageName, ...deps }: AttesterDeps) {
    this.#imageName = imageName
    this.#signer = new StatementSigner(deps)
    this.#device = deps.device
  }

  platform(): Promise<'snp' | 'none'> {
    return this.#signer.platform()
  }

  /** Returns the measurement in hexadecimal. Call it only after the first evidence. */
  measurement(): string {
    return toHex(present(this.#measurement, 'the measurement is read before the first evidence'))
  }

  /** Makes the evidence of a stage. Fault internal if the device fails. */
  async make(stage: Stage, simulated: SimulatedLaunch | null): Promise<{ ok: true; vouched: BuildEvidence } | Refusal> {
    const launched = await this.#signer.launchOf('vouch', simulated)
    if (!launched.ok) return launched
    this.#measurement = launched.launch.measurement
    const { statement, signed } = await this.#signer.sign(this.#fieldsOf(stage, launched.launch))
    const evidence: BuildEvidence = {
      stage: stage.stage,
      ...signed,
      provenance: await provenanceReport(stage, await this.#device),
    }
    if (stage.stage === 'dispatch') this.#dispatchDigest = sha256(statement)
    this.#last = { stage, evidence }
    return { ok: true, vouched: evidence }
  }

  /** Stores the host's completed evidence if it belongs to the current stage. */
  keep(stage: AttestedStage, text: string, provenance: VouchedProvenance | null): { ok: true } | Refusal {
    if (this.#last === null || this.#last.stage.stage !== stage)
      return refuse('unclaimed', 'vouched: no evidence of this stage was requested')
    const read = readReceipt('vouched.receipt', text, this.#last.evidence)
    if (!read.ok) return read
    const problem = this.#provenanceProblem(this.#last, provenance)
    if (problem !== null) return refuse('bad_request', `vouched.provenance: ${problem}`)
    this.#receipts[stage] = read.receipt
    if (provenance !== null) {
      const { report, vek, ask, ark } = provenance
      this.#provenance = { report: decode(report), vek: decode(vek), ask: decode(ask), ark: decode(ark) }
    }
    return ok
  }

  /** Returns the exact bytes of evidence.json. Call it only after both stages. */
  evidenceFile(): Uint8Array {
    const { dispatch, completion } = this.#receipts
    if (dispatch === undefined || completion === undefined) throw new Error('invariant broken: a receipt is missing')
    return evidenceBytes({ platform: completion.platform, evidence: this.#provenance, dispatch, completion })
  }

  /** Checks what the report covers: otherwise evidence.json would be wrong. Null if it is right. */
  #provenanceProblem(
    { stage, evidence }: { stage: Stage; evidence: BuildEvidence },
    given: VouchedProvenance | null,
  ): string | null {
    if ((evidence.provenance === null) !== (given === null)) return 'present in only one of evidence and request'
    if (given === null || stage.stage !== 'completion') return null
    if (evidence.provenance?.report !== null && evidence.provenance?.report !== given.report)
      return 'its report differs from that of the evidence'
    const expected = familyReportData(stage.provenanceDigest, stage.nonce)
    try {
      const { reportData } = decodeReport(decode(given.report))
      return expected !== null && equalConstantTime(reportData, expected) ? null : 'its report covers other data'
    } catch (error) {
      return messageOf(error)
    }
  }

  #fieldsOf(stage: Stage, launch: Launch): StatementFields {
    const { nonce, sourceDigest, networkPolicy } = stage
    const common = {
      nonce,
      sourceDigest,
      networkPolicy,
      operatorKey: launch.operatorKey,
      image: { name: this.#imageName, measurement: launch.measurement },
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
    sha256: toHex(stage.provenanceDigest),
    report: report === null ? null : toBase64Url(report),
  }
}

function decode(text: string): Uint8Array {
  const bytes = fromBase64Url(text)
  if (bytes === null) throw new Error('vouched.provenance: not canonical base64url')
  return bytes
}
