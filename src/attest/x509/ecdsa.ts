// ECDSA on P-256 with SHA-256 for Intel's certificates, CRLs and signed documents, with WebCrypto; and the DER form of
// signatures on any curve. Pure.

import { concat, fromHex } from '../../base/bytes.ts'
import { DerFields, integerHex, readSequence, TAG } from '../encoding/der.ts'
import { webBytes } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import type { Certificate, SignatureAlgorithm } from './certificate.ts'

/** Bytes of a P-256 scalar. */
const p256ScalarBytes = 32

/** Reports whether R and S, 32 bytes each, big-endian, sign these bytes under X and Y, 32 bytes each. Never throws. */
export async function isSignedByPoint(bytes: Uint8Array, signature: Uint8Array, xy: Uint8Array): Promise<boolean> {
  if (signature.length !== 2 * p256ScalarBytes || xy.length !== 2 * p256ScalarBytes) return false
  const { subtle } = crypto
  try {
    const point = webBytes(concat(Uint8Array.of(4), xy))
    const key = await subtle.importKey('raw', point, { name: 'ECDSA', namedCurve: 'P-256' }, false, ['verify'])
    return await subtle.verify({ name: 'ECDSA', hash: 'SHA-256' }, key, webBytes(signature), webBytes(bytes))
  } catch {
    // The platform rejects the key: the point is not on the curve.
    return false
  }
}

/** Reports whether R and S sign these bytes under the key of a certificate. Never throws. */
export async function isSignedByKeyOf(issuer: Certificate, bytes: Uint8Array, signature: Uint8Array): Promise<boolean> {
  const key = issuer.publicKey
  return key.kind === 'p-256' && (await isSignedByPoint(bytes, signature, key.point.subarray(1)))
}

type Signed = {
  readonly signedBytes: Uint8Array
  readonly signatureAlgorithm: SignatureAlgorithm
  readonly signature: Uint8Array
}

/** Reports whether this issuer's key signed a certificate or CRL. Never throws. */
export async function isIssuedWithP256(signed: Signed, issuer: Certificate): Promise<boolean> {
  if (signed.signatureAlgorithm !== 'ecdsa-sha256') return false
  const raw = rawSignature(signed.signature, p256ScalarBytes)
  return raw !== null && (await isSignedByKeyOf(issuer, signed.signedBytes, raw))
}

/**
 * Extracts R and S, `scalarBytes` each, from a SEQUENCE of two INTEGERs (RFC 3279 section 2.2.3) of any curve; null for
 * any other form.
 */
export function rawSignature(der: Uint8Array, scalarBytes: number): Uint8Array | null {
  try {
    const fields = new DerFields(readSequence(der, 'signature'), 'signature')
    const scalars = ['R', 'S'].map(name => {
      const hex = integerHex(fields.take(TAG.integer, name).contents, name)
      wellFormed(hex.length <= 2 * scalarBytes, `${name}: longer than ${scalarBytes} bytes`)
      return fromHex(hex.padStart(2 * scalarBytes, '0')) ?? new Uint8Array(scalarBytes)
    })
    fields.end()
    return concat(...scalars)
  } catch {
    return null
  }
}
