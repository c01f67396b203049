// ECDSA on P-256 with SHA-256: signatures of certificates, CRLs and signed documents of Intel's, by WebCrypto; and the
// DER form of signatures on any curve. Pure.

import { concat, fromHex } from '../../base/bytes.ts'
import { DerFields, integerHex, readSequence, TAG } from '../encoding/der.ts'
import { webBytes } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import type { Certificate, SignatureAlgorithm } from './certificate.ts'

/** P-256's. */
const p256ScalarBytes = 32

/** Whether R and S, 32 bytes each, big-endian, sign these bytes under X and Y, 32 bytes each. Never throws. */
export async function isSignedByPoint(bytes: Uint8Array, signature: Uint8Array, xy: Uint8Array): Promise<boolean> {
  if (signature.length !== 2 * p256ScalarBytes || xy.length !== 2 * p256ScalarBytes) return false
  const { subtle } = crypto
  try {
    const point = webBytes(concat(Uint8Array.of(4), xy))
    const key = await subtle.importKey('raw', point, { name: 'ECDSA', namedCurve: 'P-256' }, false, ['verify'])
    return await subtle.verify({ name: 'ECDSA', hash: 'SHA-256' }, key, webBytes(signature), webBytes(bytes))
  } catch {
    // The platform refuses the key: a point that is not on the curve.
    return false
  }
}

/** The same under the key of a certificate. */
export async function isSignedByKeyOf(issuer: Certificate, bytes: Uint8Array, signature: Uint8Array): Promise<boolean> {
  const key = issuer.publicKey
  return key.kind === 'p-256' && (await isSignedByPoint(bytes, signature, key.point.subarray(1)))
}

type Signed = {
  readonly signedBytes: Uint8Array
  readonly signatureAlgorithm: SignatureAlgorithm
  readonly signature: Uint8Array
}

/** Whether a certificate or CRL is signed by this issuer's key. Never throws. */
export async function isIssuedWithP256(signed: Signed, issuer: Certificate): Promise<boolean> {
  if (signed.signatureAlgorithm !== 'ecdsa-sha256') return false
  const raw = rawSignature(signed.signature, p256ScalarBytes)
  return raw !== null && (await isSignedByKeyOf(issuer, signed.signedBytes, raw))
}

/**
 * R and S, each in so many bytes, out of a SEQUENCE of two INTEGERs (RFC 3279 section 2.2.3), of any curve; null for
 * anything else.
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
