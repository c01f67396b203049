// Attestation keys of a TPM as SPKI (DER or PEM) and JWK; public-area.ts reads the TPM's own form. Pure.
// RFC 5280 section 4.1 and RFC 3279 section 2.3 (SPKI), RFC 5480 (curves), RFC 7517 and 7518 section 6 (JWK).

import { concat } from '../../base/bytes.ts'
import { TAG } from '../encoding/der.ts'
import { wellFormed } from '../malformed.ts'
import { CURVES, type CurveName } from './algorithm.ts'

/** An RSA key has the public exponent 65537, and a modulus of 2048 to 4096 bits without leading zeros. */
export type TpmKey =
  | { readonly type: 'rsa'; readonly modulus: Uint8Array }
  | { readonly type: 'ecc'; readonly curve: CurveName; readonly x: Uint8Array; readonly y: Uint8Array }
const modulusBitsMin = 2048
const modulusBitsMax = 4096
export const exponent = Uint8Array.from([0x01, 0x00, 0x01])

/** Makes an RSA key. Throws Malformed if the modulus is too short, too long, even, or padded. */
export function rsaKey(modulus: Uint8Array): TpmKey {
  const first = modulus[0] ?? 0
  const bits = modulus.length * 8 - Math.clz32(first) + 24
  wellFormed(first !== 0 && bits >= modulusBitsMin && bits <= modulusBitsMax, 'tpm key: RSA modulus size')
  wellFormed(((modulus.at(-1) ?? 0) & 1) === 1, 'tpm key: even RSA modulus')
  return { type: 'rsa', modulus }
}

/** Makes an EC key, padding coordinates to the curve's size. WebCrypto checks that the point is on the curve. */
export function eccKey(curve: CurveName, x: Uint8Array, y: Uint8Array): TpmKey {
  return { type: 'ecc', curve, x: leftPad(x, CURVES[curve].sizeBytes), y: leftPad(y, CURVES[curve].sizeBytes) }
}

/** Pads with leading zeros to `sizeBytes`. Throws Malformed if the bytes are empty or longer, even by leading zeros. */
export function leftPad(bytes: Uint8Array, sizeBytes: number): Uint8Array {
  wellFormed(bytes.length > 0 && bytes.length <= sizeBytes, 'tpm key: integer size')
  return concat(new Uint8Array(sizeBytes - bytes.length), bytes)
}

/** Returns the DER form of the key. It is unique, so keys can be compared by it. */
export function encodeSpki(key: TpmKey): Uint8Array {
  if (key.type === 'rsa') {
    const parameters = der(TAG.sequence, rsaEncryption, der(TAG.null))
    const numbers = der(TAG.sequence, derInteger(key.modulus), derInteger(exponent))
    return der(TAG.sequence, parameters, der(TAG.bitString, Uint8Array.of(0), numbers))
  }
  const parameters = der(TAG.sequence, ecPublicKey, curveIdentifiers[key.curve])
  return der(TAG.sequence, parameters, der(TAG.bitString, Uint8Array.of(0, pointUncompressed), key.x, key.y))
}

export const pointUncompressed = 0x04

/** Object identifiers in DER: RFC 3279 section 2.3.1, RFC 5480 section 2.1.1. */
export const rsaEncryption = Uint8Array.from([0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01])
export const ecPublicKey = Uint8Array.from([0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01])
export const curveIdentifiers = {
  'P-256': Uint8Array.from([0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]),
  'P-384': Uint8Array.from([0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22]),
  'P-521': Uint8Array.from([0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23]),
} as const satisfies Record<CurveName, Uint8Array>

function der(tag: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const body = concat(...parts)
  const { length } = body
  const head = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return concat(Uint8Array.of(tag, ...head), body)
}

function derInteger(unsigned: Uint8Array): Uint8Array {
  return der(TAG.integer, (unsigned[0] ?? 0) >= 0x80 ? Uint8Array.of(0) : new Uint8Array(0), unsigned)
}
