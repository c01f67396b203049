// Attestation keys of a TPM as SPKI (DER or PEM) and JWK; public-area.ts reads the TPM's own form. Pure.
// RFC 5280 section 4.1 and RFC 3279 section 2.3 (SPKI), RFC 5480 (curves), RFC 7517 and 7518 section 6 (JWK).

import { concat, fromBase64, fromBase64Url, toHex } from '../../base/bytes.ts'
import { DerFields, readSequence, TAG, wholeBits } from '../encoding/der.ts'
import { wellFormed } from '../malformed.ts'
import { CURVES, type CurveName, curveNames } from './algorithm.ts'

/** Public exponent 65537, and a modulus of 2048 to 4096 bits without leading zeros. */
export type TpmKey =
  | { readonly type: 'rsa'; readonly modulus: Uint8Array }
  | { readonly type: 'ecc'; readonly curve: CurveName; readonly x: Uint8Array; readonly y: Uint8Array }

/** Names the structure in messages. */
const what = 'tpm key'
const modulusBitsMin = 2048
const modulusBitsMax = 4096
const exponent = Uint8Array.from([0x01, 0x00, 0x01])
const spkiBytesMax = 1024
const pemLengthMax = 4096

/** Throws Malformed on moduli that are too short, too long, even, or padded. */
export function rsaKey(modulus: Uint8Array): TpmKey {
  const first = modulus[0] ?? 0
  const bits = modulus.length * 8 - Math.clz32(first) + 24
  wellFormed(first !== 0 && bits >= modulusBitsMin && bits <= modulusBitsMax, 'tpm key: RSA modulus size')
  wellFormed(((modulus.at(-1) ?? 0) & 1) === 1, 'tpm key: even RSA modulus')
  return { type: 'rsa', modulus }
}

/** Coordinates are left-padded to the curve's size. WebCrypto checks whether the point is on the curve. */
export function eccKey(curve: CurveName, x: Uint8Array, y: Uint8Array): TpmKey {
  return { type: 'ecc', curve, x: leftPad(x, CURVES[curve].sizeBytes), y: leftPad(y, CURVES[curve].sizeBytes) }
}

/** Padded with leading zeros to `sizeBytes`. Throws Malformed when empty or longer, even by leading zeros. */
export function leftPad(bytes: Uint8Array, sizeBytes: number): Uint8Array {
  wellFormed(bytes.length > 0 && bytes.length <= sizeBytes, 'tpm key: integer size')
  return concat(new Uint8Array(sizeBytes - bytes.length), bytes)
}

/** The DER form of the key. There is one only, so that keys can be compared by it. */
export function encodeSpki(key: TpmKey): Uint8Array {
  if (key.type === 'rsa') {
    const parameters = der(TAG.sequence, rsaEncryption, der(TAG.null))
    const numbers = der(TAG.sequence, derInteger(key.modulus), derInteger(exponent))
    return der(TAG.sequence, parameters, der(TAG.bitString, Uint8Array.of(0), numbers))
  }
  const parameters = der(TAG.sequence, ecPublicKey, curveIdentifiers[key.curve])
  return der(TAG.sequence, parameters, der(TAG.bitString, Uint8Array.of(0, pointUncompressed), key.x, key.y))
}

/** Throws Malformed on anything that `encodeSpki` would not have written. */
export function decodeSpki(bytes: Uint8Array): TpmKey {
  wellFormed(bytes.length <= spkiBytesMax, 'tpm key: SPKI too long')
  const fields = new DerFields(readSequence(bytes, what), what)
  const algorithm = fields.take(TAG.sequence, 'algorithm').contents
  const body = wholeBits(fields.take(TAG.bitString, 'key').contents, what)
  fields.end()
  const key = startsWith(algorithm, rsaEncryption) ? rsaOf(body) : eccOf(algorithm, body)
  wellFormed(toHex(encodeSpki(key)) === toHex(bytes), 'tpm key: SPKI is not canonical')
  return key
}

/** One `PUBLIC KEY` block of PEM (RFC 7468 section 13). */
export function decodePemKey(text: string): TpmKey {
  wellFormed(text.length <= pemLengthMax, 'tpm key: PEM too long')
  const body = /^\s*-----BEGIN PUBLIC KEY-----\r?\n([A-Za-z0-9+/=\r\n]+)-----END PUBLIC KEY-----\s*$/.exec(text)?.[1]
  const bytes = body === undefined ? null : fromBase64(body.replace(/[\r\n]/g, ''))
  wellFormed(bytes !== null, 'tpm key: not a PEM public key')
  return decodeSpki(bytes)
}

/** An RSA or EC public key as JWK, already parsed from JSON. Other members are ignored (RFC 7517 section 4). */
export function decodeJwk(jwk: unknown): TpmKey {
  wellFormed(typeof jwk === 'object' && jwk !== null, 'tpm key: not a JWK')
  const member = (name: string): unknown => Reflect.get(jwk, name)
  const bytesOf = (name: string): Uint8Array => {
    const text = member(name)
    const bytes = typeof text === 'string' && text.length <= spkiBytesMax ? fromBase64Url(text) : null
    wellFormed(bytes !== null, `tpm key: JWK member ${name}`)
    return bytes
  }
  if (member('kty') === 'RSA') {
    wellFormed(toHex(bytesOf('e')) === toHex(exponent), 'tpm key: RSA exponent')
    return rsaKey(bytesOf('n'))
  }
  wellFormed(member('kty') === 'EC', 'tpm key: JWK type')
  const curve = curveNames.find(name => name === member('crv'))
  wellFormed(curve !== undefined, 'tpm key: unknown curve')
  const [x, y] = [bytesOf('x'), bytesOf('y')]
  // RFC 7518 section 6.2.1.2: coordinates have the curve's full size.
  wellFormed(x.length === CURVES[curve].sizeBytes && y.length === x.length, 'tpm key: coordinate size')
  return eccKey(curve, x, y)
}

const pointUncompressed = 0x04

/** Object identifiers, already in DER: RFC 3279 section 2.3.1, RFC 5480 section 2.1.1. */
const rsaEncryption = Uint8Array.from([0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01])
const ecPublicKey = Uint8Array.from([0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01])
const curveIdentifiers = {
  'P-256': Uint8Array.from([0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]),
  'P-384': Uint8Array.from([0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22]),
  'P-521': Uint8Array.from([0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23]),
} as const satisfies Record<CurveName, Uint8Array>

function rsaOf(body: Uint8Array): TpmKey {
  const numbers = new DerFields(readSequence(body, what), what)
  const modulus = numbers.take(TAG.integer, 'RSA modulus').contents
  const given = numbers.take(TAG.integer, 'RSA exponent').contents
  wellFormed(toHex(given) === toHex(exponent), 'tpm key: RSA exponent')
  numbers.end()
  return rsaKey(modulus[0] === 0 ? modulus.slice(1) : modulus.slice())
}

function eccOf(algorithm: Uint8Array, body: Uint8Array): TpmKey {
  const curve = curveNames.find(name => toHex(concat(ecPublicKey, curveIdentifiers[name])) === toHex(algorithm))
  wellFormed(curve !== undefined, 'tpm key: unknown algorithm or curve')
  const { sizeBytes } = CURVES[curve]
  wellFormed(body.length === 1 + 2 * sizeBytes && body[0] === pointUncompressed, 'tpm key: point')
  return eccKey(curve, body.slice(1, 1 + sizeBytes), body.slice(1 + sizeBytes))
}

function der(tag: number, ...parts: readonly Uint8Array[]): Uint8Array {
  const body = concat(...parts)
  const { length } = body
  const head = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return concat(Uint8Array.of(tag, ...head), body)
}

function derInteger(unsigned: Uint8Array): Uint8Array {
  return der(TAG.integer, (unsigned[0] ?? 0) >= 0x80 ? Uint8Array.of(0) : new Uint8Array(0), unsigned)
}

function startsWith(bytes: Uint8Array, prefix: Uint8Array): boolean {
  return prefix.every((byte, i) => bytes[i] === byte)
}
