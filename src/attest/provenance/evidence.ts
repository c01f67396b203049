// evidence.json of a build: the report over its provenance in the shape that every reader of this family parses, and beside it our two receipts.
// Pure; verifier/build.ts decides whether to trust one.
//
// The outer object of the family's readers ignores fields that it does not know; `evidence` and `cert_chain` refuse them.

import { concat, toBase64 } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'
import { prettyJson } from './json.ts'

/** REPORT_DATA has 64 bytes: SHA-256 of provenance.json, the nonce of exactly 16 bytes, zeros. */
export const familyNonceBytes = 16

/** Null for a nonce of fewer than 16 bytes: padded, it could not be told from another. `provenanceDigest` has 32 bytes. */
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

export type BuildEvidenceFile = {
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
