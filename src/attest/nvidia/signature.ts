// ECDSA on P-384 with SHA-384, NVIDIA's only signature algorithm: for certificates, OCSP responses, SPDM reports and
// XML. Pure: the caller supplies the curve, from the runtime or portable-p384.ts. Synchronous, because the XML
// signature library requires a synchronous result.

import type { Certificate, SignatureAlgorithm } from '../x509/certificate.ts'
import { rawSignature } from '../x509/ecdsa.ts'

const scalarBytes = 48
/** Length of R and S, big-endian (SPDM, DSP0274 1.1, section 10.11; XML Signature 1.1, section 6.4.3). */
export const signatureBytes = 2 * scalarBytes

/** Reports whether R and S, 48 bytes each, sign these bytes under an uncompressed point. Throws if they cannot. */
export type VerifyP384 = (signature: Uint8Array, bytes: Uint8Array, point: Uint8Array) => boolean

type Signed = {
  readonly signedBytes: Uint8Array
  readonly signatureAlgorithm: SignatureAlgorithm
  readonly signature: Uint8Array
}

/** Reports whether R and S sign these bytes under this certificate's key. Never throws. */
export function isSignedByKeyOf(
  certificate: Certificate,
  bytes: Uint8Array,
  signature: Uint8Array,
  verify: VerifyP384,
): boolean {
  const key = certificate.publicKey
  if (key.kind !== 'p-384' || signature.length !== signatureBytes) return false
  try {
    return verify(signature, bytes, key.point)
  } catch {
    // The point is not on the curve, or a scalar is zero or beyond the order.
    return false
  }
}

/** Reports whether this issuer signed a certificate or an OCSP response. Never throws. */
export function isIssuedBy(signed: Signed, issuer: Certificate, verify: VerifyP384): boolean {
  if (signed.signatureAlgorithm !== 'ecdsa-sha384') return false
  const raw = rawSignature(signed.signature, scalarBytes)
  return raw !== null && isSignedByKeyOf(issuer, signed.signedBytes, raw, verify)
}
