// Checks that a VEK signed an SNP report. Pure. chain.ts checks who owns the key, appraise.ts what the report contains.
// AMD 56860 rev 1.58, section 7.3 and table 23: ECDSA on P-384 with SHA-384 over bytes 0x000 to 0x29F; R and S
// little-endian.

import { concat } from '../../base/bytes.ts'
import { isZero } from '../encoding/layout.ts'
import { webBytes } from '../hash.ts'
import { parsed, reasonOf } from '../malformed.ts'
import { decodeReport, encodeReport, FIELDS, reportSignedBytes, type SnpReport } from '../report/report.ts'
import { type Check, check, fail } from '../verdict.ts'

export const reportSignatureCheck = 'report-signature'

/** Order of P-384, FIPS 186-5 / SP 800-186 section 3.2.1.4. */
const curveOrder = 0xffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973n
const scalarSizeBytes = 48
const ecdsaP384Sha384 = 1

/**
 * Returns the check `report-signature`, for callers that have only these bytes; others use verifyEvidence.
 * `vekPublicKey` is the SubjectPublicKeyInfo (DER) of the VCEK or VLEK. Never throws: bytes that are not a report, an
 * unsigned report, and a key of another kind fail the check.
 */
export async function verifyReportSignature(reportBytes: Uint8Array, vekPublicKey: Uint8Array): Promise<Check> {
  const report = parsed(() => decodeReport(reportBytes))
  if (!report.ok) return fail(reportSignatureCheck, report.reason)
  return await checkReportSignature(report.value, vekPublicKey)
}

/** Verifies a decoded report by re-encoding it, so a value changed since decoding fails. */
export async function checkReportSignature(report: SnpReport, vekPublicKey: Uint8Array): Promise<Check> {
  const reject = (reason: string) => fail(reportSignatureCheck, reason)
  try {
    if (report.signer === 'none') return reject('the report is marked as not signed')
    if (report.signatureAlgo !== ecdsaP384Sha384) return reject(`signature algorithm ${report.signatureAlgo} is not 1`)
    const r = scalarOf(report.signature.r)
    const s = scalarOf(report.signature.s)
    if (r === null || s === null) return reject('R or S is not between 0 and the order of P-384')
    const bytes = encodeReport(report)
    // The signature does not cover the bytes after S. Unless they are fixed, a report would have several forms.
    if (!isZero(bytes.subarray(FIELDS.reserved330[0]))) return reject('the bytes after the signature are not zero')
    const key = await importVek(vekPublicKey)
    if (key === null) return reject('the VEK is not a P-384 public key')
    const holds = await crypto.subtle.verify(
      { name: 'ECDSA', hash: 'SHA-384' },
      key,
      webBytes(concat(r, s)),
      webBytes(reportSignedBytes(bytes)),
    )
    return check(reportSignatureCheck, holds, 'the signature is not of this VEK', `by the ${report.signer} given`)
  } catch (error) {
    return reject(reasonOf(error))
  }
}

async function importVek(spki: Uint8Array): Promise<CryptoKey | null> {
  try {
    const algorithm = { name: 'ECDSA', namedCurve: 'P-384' }
    return await crypto.subtle.importKey('spki', webBytes(spki), algorithm, false, ['verify'])
  } catch {
    return null
  }
}

/** Reads 48 bytes, big-endian, from a 72-byte little-endian field; null unless 0 < value < order. */
function scalarOf(field: Uint8Array): Uint8Array | null {
  const big = Uint8Array.from(field).reverse()
  const value = big.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n)
  return value > 0n && value < curveOrder ? big.slice(big.length - scalarSizeBytes) : null
}
