// evidence.json of a build: the report over its provenance, in the form that every reader of this family parses, with
// our two receipts beside it. Pure; verifier/build/build.ts decides whether to trust it.
//
// The family's readers ignore unknown fields in the outer object, but reject them in `evidence` and `cert_chain`.

import { concat, fromBase64, fromBase64Url, fromHex, toBase64 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { wellFormed } from '../malformed.ts'
import { count, listOf, members, optional, orNull, type Reader, record, text } from './fields.ts'
import { prettyJson } from './json.ts'

/** REPORT_DATA has 64 bytes: SHA-256 of provenance.json, the nonce of exactly 16 bytes, zeros. */
export const familyNonceBytes = 16

/**
 * Returns the REPORT_DATA. Null for a nonce under 16 bytes, because padding could make two equal. `provenanceDigest`
 * has 32 bytes.
 */
export function familyReportData(provenanceDigest: Uint8Array, nonce: Uint8Array): Uint8Array | null {
  wellFormed(provenanceDigest.length === 32, 'evidence: the digest of the provenance has not 32 bytes')
  return nonce.length === familyNonceBytes ? concat(provenanceDigest, nonce, new Uint8Array(16)) : null
}

/** Certificates in DER, and the report of 1184 bytes. */
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
  /** Receipts from encodeReceipt of attest/receipt/receipt.ts. */
  readonly dispatch: unknown
  readonly completion: unknown
}

/** Returns the exact bytes of evidence.json. */
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

/** Size limit. Our receipts take about 20 KiB each, a report with its chain 6 KiB. */
const evidenceBytesMax = 1024 * 1024

/** Parsed evidence, ours or from another builder of the family. Only its form is checked. */
export type ReadEvidence = {
  readonly platform: string
  readonly evidence: FamilyEvidence | null
  /** Null in evidence of other builders. */
  readonly receipts: { readonly dispatch: unknown; readonly completion: unknown } | null
}

type FamilyEvidence = { readonly kind: 'snp'; readonly snp: SnpEvidence } | VtpmEvidence

/** Evidence on Azure: the paravisor's TPM quotes the REPORT_DATA, and an HCL report binds the TPM's key. */
export type VtpmEvidence = {
  readonly kind: 'az-snp'
  readonly hclReport: Uint8Array
  readonly vek: Uint8Array
  /** TPMS_ATTEST. */
  readonly quote: Uint8Array
  /** RSASSA signature with SHA-256, without its structure. */
  readonly signature: Uint8Array
  /** Values of the SHA-256 bank, from PCR 0. */
  readonly pcrs: readonly Uint8Array[]
}

/** Reads evidence. Throws Malformed for any form outside of the family, and for evidence of other hardware. */
export function readEvidence(bytes: Uint8Array): ReadEvidence {
  wellFormed(bytes.length <= evidenceBytesMax, `${what}: ${bytes.length} bytes are more than ${evidenceBytesMax}`)
  const { platform, strongroom: receipts = null, evidence } = file(parsedJson(what, bytes), what)
  wellFormed(evidence !== null || receipts !== null, `${what}: evidence: none`)
  return { platform, receipts, evidence: evidence === null ? null : familyEvidence(platform, evidence) }
}

const what = 'evidence.json'

const receipt: Reader<unknown> = (value, what) => {
  wellFormed(typeof value === 'object', `${what}: a receipt is no object`)
  return value
}

const file = record({
  platform: text,
  strongroom: optional(record({ dispatch: receipt, completion: receipt })),
  evidence: orNull(members),
})

const snpPlatforms = ['snp', 'gcp-snp', 'simulated']

function familyEvidence(platform: string, given: unknown): FamilyEvidence {
  if (platform === 'az-snp') return vtpmEvidence(given)
  wellFormed(snpPlatforms.includes(platform), `${what}: platform ${JSON.stringify(platform)} has no SEV-SNP`)
  const { attestation_report: report, cert_chain: chain } = snpForm(given, `${what}.evidence`)
  return { kind: 'snp', snp: { report, vek: chain.vcek, ask: chain.ask ?? null, ark: chain.ark ?? null } }
}

function vtpmEvidence(given: unknown): VtpmEvidence {
  const { version, tpm_quote: tpm, hcl_report: hclReport, vcek: vek } = vtpmForm(given, `${what}.evidence`)
  wellFormed(version === 1, `${what}: evidence.version is not 1`)
  wellFormed(tpm.pcrs.length <= pcrCount, `${what}: more than ${pcrCount} PCRs`)
  return { kind: 'az-snp', hclReport, vek, quote: tpm.message, signature: tpm.signature, pcrs: tpm.pcrs }
}

const pcrCount = 24

/** Reads text in this encoding, of at least one byte. */
function encoded(form: string, decode: (text: string) => Uint8Array | null): Reader<Uint8Array> {
  return (value, what) => {
    const bytes = decode(text(value, what))
    wellFormed(bytes !== null && bytes.length > 0, `${what} is not ${form}`)
    return bytes
  }
}

const base64 = encoded('base64', fromBase64)
/** Accepts text with or without padding. */
const base64Url = encoded('base64url', text => fromBase64Url(text.replace(/={1,2}$/, '')))
const hex = encoded('hexadecimal', fromHex)

/** Missing means null, as in the family's readers. */
const certificate = optional(orNull(base64))
const snpForm = record({
  attestation_report: base64,
  cert_chain: record({ vcek: base64, ask: certificate, ark: certificate }),
})
const vtpmForm = record({
  version: count,
  tpm_quote: record({ message: hex, signature: hex, pcrs: listOf(hex) }),
  hcl_report: base64Url,
  vcek: base64Url,
})
