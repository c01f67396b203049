// Reads TPM keys from SPKI, PEM and JWK. Pure.

import { concat, fromBase64, fromBase64Url, toHex } from '../../base/bytes.ts'
import { DerFields, readSequence, TAG, wholeBits } from '../encoding/der.ts'
import { wellFormed } from '../malformed.ts'
import { CURVES, curveNames } from './algorithm.ts'
import {
  curveIdentifiers,
  eccKey,
  ecPublicKey,
  encodeSpki,
  exponent,
  pointUncompressed,
  rsaEncryption,
  rsaKey,
  type TpmKey,
} from './key.ts'

/** Names the structure in messages. */
const what = 'tpm key'
const spkiBytesMax = 1024
const pemLengthMax = 4096

/** Decodes SPKI. Throws Malformed for anything that `encodeSpki` would not have written. */
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

/** Decodes one `PUBLIC KEY` block of PEM (RFC 7468 section 13). */
export function decodePemKey(text: string): TpmKey {
  wellFormed(text.length <= pemLengthMax, 'tpm key: PEM too long')
  const body = /^\s*-----BEGIN PUBLIC KEY-----\r?\n([A-Za-z0-9+/=\r\n]+)-----END PUBLIC KEY-----\s*$/.exec(text)?.[1]
  const bytes = body === undefined ? null : fromBase64(body.replace(/[\r\n]/g, ''))
  wellFormed(bytes !== null, 'tpm key: not a PEM public key')
  return decodeSpki(bytes)
}

/** Decodes an RSA or EC public key from a parsed JWK. Ignores other members (RFC 7517 section 4). */
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
  // Coordinates have the curve's full size (RFC 7518 section 6.2.1.2).
  wellFormed(x.length === CURVES[curve].sizeBytes && y.length === x.length, 'tpm key: coordinate size')
  return eccKey(curve, x, y)
}

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

function startsWith(bytes: Uint8Array, prefix: Uint8Array): boolean {
  return prefix.every((byte, i) => bytes[i] === byte)
}
