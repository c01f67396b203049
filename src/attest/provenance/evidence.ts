// evidence.json of a build: the report over its provenance in the shape that every reader of this family parses, and
// beside it our two receipts. Pure; verifier/build/build.ts decides whether to trust one.
//
// The outer object of the family's readers ignores fields that it does not know; `evidence` and `cert_chain` refuse
// them.

import { concat, fromBase64, fromBase64Url, fromHex, toBase64 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { Fields } from './fields.ts'
import { prettyJson } from './json.ts'

/** REPORT_DATA has 64 bytes: SHA-256 of provenance.json, the nonce of exactly 16 bytes, zeros. */
export const familyNonceBytes = 16

/** Null for a nonce under 16 bytes: two could look the same once padded. `provenanceDigest` has 32 bytes. */
export function familyReportData(provenanceDigest: Uint8Array, nonce: Uint8Array): Uint8Array | null {
  wellFormed(provenanceDigest.length === 32, 'evidence: the digest of the provenance has not 32 bytes')
  return nonce.length === familyNonceBytes ? concat(provenanceDigest, nonce, new Uint8Array(16)) : null
}

/** DER, and the report's 1184 bytes. */
export type SnpEvidence = {
  readonly report: Uint8Array
  readonly vek: Uint8Array
  readonly ask: Uint8Array | null
  readonly ark: Uint8Array | null
}

type BuildEvidenceFile = {
  readonly platform: 'snp' | 'simulated'
  /** The report over `familyReportData`; null for a nonce of fewer than 16 bytes. */
  readonly evidence: SnpEvidence | null
  /** Receipts as encodeReceipt of attest/receipt/receipt.ts makes them. */
  readonly dispatch: unknown
  readonly completion: unknown
}

/** Exact bytes of evidence.json. */
export function evidenceBytes(file: BuildEvidenceFile): Uint8Array {
  const { evidence } = file
  return prettyJson({
    platform: file.platform,
    evidence:
      evidence === null
        ? null
        : {
            attestation_report: toBase64(evidence.report),
            cert_chain: {
              vcek: toBase64(evidence.vek),
              ask: evidence.ask === null ? null : toBase64(evidence.ask),
              ark: evidence.ark === null ? null : toBase64(evidence.ark),
            },
          },
    strongroom: { dispatch: file.dispatch, completion: file.completion },
  })
}

/** Our receipts have some 20 KiB each, a report with its chain 6. */
const evidenceBytesMax = 1024 * 1024

/** Evidence as read: ours, or that of another builder of the family. Only its form is checked. */
export type ReadEvidence = {
  readonly platform: string
  readonly evidence: FamilyEvidence | null
  /** Null in what other builders write. */
  readonly receipts: { readonly dispatch: unknown; readonly completion: unknown } | null
}

type FamilyEvidence = { readonly kind: 'snp'; readonly snp: SnpEvidence } | VtpmEvidence

/** On Azure: the paravisor's TPM quotes what REPORT_DATA would be, and an HCL report binds the TPM's key. */
export type VtpmEvidence = {
  readonly kind: 'az-snp'
  readonly hclReport: Uint8Array
  readonly vek: Uint8Array
  /** TPMS_ATTEST. */
  readonly quote: Uint8Array
  /** RSASSA with SHA-256, without its structure. */
  readonly signature: Uint8Array
  /** Values of the SHA-256 bank, from PCR 0 on. */
  readonly pcrs: readonly Uint8Array[]
}

/** Throws Malformed for what is not in one of the forms of the family, and for evidence of other hardware. */
export function readEvidence(bytes: Uint8Array): ReadEvidence {
  wellFormed(bytes.length <= evidenceBytesMax, `${what}: ${bytes.length} bytes are more than ${evidenceBytesMax}`)
  const root = new Fields(parsedJson(what, bytes), what)
  const platform = root.text('platform')
  const receipts = root.has('strongroom') ? receiptsOf(root.object('strongroom')) : null
  const isLeftOut = root.take('evidence') === null
  wellFormed(!isLeftOut || receipts !== null, `${what}: evidence: none`)
  const evidence = isLeftOut ? null : familyEvidence(platform, root.object('evidence'))
  root.end()
  return { platform, evidence, receipts }
}

const what = 'evidence.json'

function receiptsOf(fields: Fields): NonNullable<ReadEvidence['receipts']> {
  const receipts = { dispatch: fields.take('dispatch'), completion: fields.take('completion') }
  for (const receipt of Object.values(receipts))
    wellFormed(typeof receipt === 'object', `${what}: a receipt is no object`)
  fields.end()
  return receipts
}

const snpPlatforms = ['snp', 'gcp-snp', 'simulated']

function familyEvidence(platform: string, fields: Fields): FamilyEvidence {
  if (platform === 'az-snp') return vtpmEvidence(fields)
  wellFormed(snpPlatforms.includes(platform), `${what}: platform ${JSON.stringify(platform)} has no SEV-SNP`)
  const report = base64(fields.text('attestation_report'), 'attestation_report')
  const chain = fields.object('cert_chain')
  const snp: SnpEvidence = {
    report,
    vek: base64(chain.text('vcek'), 'cert_chain.vcek'),
    ask: base64OrNull(chain, 'ask'),
    ark: base64OrNull(chain, 'ark'),
  }
  chain.end()
  fields.end()
  return { kind: 'snp', snp }
}

/** Missing is null, as the family's readers take it. */
function base64OrNull(chain: Fields, name: 'ask' | 'ark'): Uint8Array | null {
  const text = chain.has(name) ? chain.textOrNull(name) : null
  return text === null ? null : base64(text, `cert_chain.${name}`)
}

const pcrCount = 24

function vtpmEvidence(fields: Fields): VtpmEvidence {
  wellFormed(fields.count('version') === 1, `${what}: evidence.version is not 1`)
  const tpm = fields.object('tpm_quote')
  const evidence: VtpmEvidence = {
    kind: 'az-snp',
    hclReport: base64Url(fields.text('hcl_report'), 'hcl_report'),
    vek: base64Url(fields.text('vcek'), 'vcek'),
    quote: hex(tpm.text('message'), 'tpm_quote.message'),
    signature: hex(tpm.text('signature'), 'tpm_quote.signature'),
    pcrs: tpm.list('pcrs', (pcr, where) => {
      wellFormed(typeof pcr === 'string', `${where}: not a text`)
      return hex(pcr, 'tpm_quote.pcrs')
    }),
  }
  wellFormed(evidence.pcrs.length <= pcrCount, `${what}: more than ${pcrCount} PCRs`)
  tpm.end()
  fields.end()
  return evidence
}

function base64(text: string, field: string): Uint8Array {
  return decoded(fromBase64(text), field, 'base64')
}

/** With or without padding. */
function base64Url(text: string, field: string): Uint8Array {
  return decoded(fromBase64Url(text.replace(/={1,2}$/, '')), field, 'base64url')
}

function hex(text: string, field: string): Uint8Array {
  return decoded(fromHex(text), field, 'hexadecimal')
}

function decoded(bytes: Uint8Array | null, field: string, form: string): Uint8Array {
  if (bytes === null || bytes.length === 0) throw new Malformed(`${what}: ${field} is not ${form}`)
  return bytes
}
