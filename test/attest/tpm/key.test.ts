// Goal: the SPKI of a TPM's key is the one that others write and read, in one form only, and keys of other sizes are
// none. The form is compared with that of node:crypto, which has its own writer.

import { describe, expect, test } from 'bun:test'
import { createPublicKey } from 'node:crypto'
import { Malformed } from '../../../src/attest/malformed.ts'
import { eccKey, encodeSpki, exponent, leftPad, rsaKey, type TpmKey } from '../../../src/attest/tpm/key.ts'
import { decodeJwk, decodePemKey, decodeSpki } from '../../../src/attest/tpm/key-decode.ts'
import { fromHex, toBase64, toBase64Url, toHex } from '../../../src/base/bytes.ts'

/** A modulus of so many bytes that begins and ends so. */
function modulus(sizeBytes: number, first = 0x80, last = 1): Uint8Array {
  return new Uint8Array(sizeBytes)
    .fill(0x55)
    .with(0, first)
    .with(sizeBytes - 1, last)
}

const url = (bytes: Uint8Array) => toBase64Url(bytes)

/** Points of each curve: SEC 2, the generators of secp256r1, secp384r1 and secp521r1. */
const POINTS = {
  'P-256': [
    '6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296',
    '4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5',
  ],
  'P-384': [
    'aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7',
    '3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f',
  ],
  'P-521': [
    '00c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3dbaa14b5e77efe75928fe1dc127a2ffa8de3348b3c1856a' +
      '429bf97e7e31c2e5bd66',
    '011839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd17273e662c97ee72995ef42640c550b9013fad0761353c7086a272' +
      'c24088be94769fd16650',
  ],
} as const

const bytes = (text: string) => fromHex(text) ?? new Uint8Array(0)
const curves = Object.keys(POINTS) as (keyof typeof POINTS)[]
const pointKey = (curve: keyof typeof POINTS) => eccKey(curve, bytes(POINTS[curve][0]), bytes(POINTS[curve][1]))

const KEYS: readonly (readonly [string, TpmKey, Record<string, string>])[] = [
  ...[256, 257, 384, 511, 512].map(size => {
    const n = modulus(size, 0x80)
    return [`RSA of ${size} bytes`, rsaKey(n), { kty: 'RSA', n: url(n), e: 'AQAB' }] as const
  }),
  ['RSA with a low first byte', rsaKey(modulus(257, 1)), { kty: 'RSA', n: url(modulus(257, 1)), e: 'AQAB' }],
  ...curves.map(crv => {
    const [x, y] = POINTS[crv]
    return [crv, pointKey(crv), { kty: 'EC', crv, x: url(bytes(x)), y: url(bytes(y)) }] as const
  }),
]

describe.each(KEYS)('%s', (_, key, jwk) => {
  const theirs = createPublicKey({ key: jwk, format: 'jwk' }).export({ type: 'spki', format: 'der' })

  test('goal: SPKI, PEM and JWK of one key', () => {
    const spki = encodeSpki(key)
    expect(toHex(spki)).toBe(theirs.toString('hex'))
    expect(decodeSpki(new Uint8Array(theirs))).toEqual(key)
    const pem = createPublicKey({ key: jwk, format: 'jwk' }).export({ type: 'spki', format: 'pem' }).toString()
    expect(decodePemKey(pem)).toEqual(key)
    expect(decodePemKey(` ${pem.replaceAll('\n', '\r\n')} `)).toEqual(key)
    expect(decodeJwk({ ...jwk, kid: 'other' })).toEqual(key)
  })

  test('goal: no byte more or less', () => {
    const spki = new Uint8Array(theirs)
    expect(() => decodeSpki(spki.subarray(0, -1))).toThrow(Malformed)
    expect(() => decodeSpki(new Uint8Array([...spki, 0]))).toThrow(Malformed)
  })
})

test('goal: the public exponent is 65537', () => {
  expect(toHex(exponent)).toBe('010001')
})

test('goal: moduli of 2048 to 4096 bits, odd, without leading zeros', () => {
  for (const good of [modulus(256, 0x80), modulus(512, 0xff)])
    expect(rsaKey(good)).toEqual({ type: 'rsa', modulus: good })
  const size = 'tpm key: RSA modulus size'
  for (const bad of [modulus(256, 0x7f), modulus(255, 0xff), modulus(513, 1), modulus(257, 0), new Uint8Array(0)])
    expect(() => rsaKey(bad)).toThrow(new Malformed(size))
  for (const last of [0, 2, 0xfe]) expect(() => rsaKey(modulus(256, 0x80, last))).toThrow('tpm key: even RSA modulus')
})

test('goal: coordinates are filled up with zeros to the size of their curve', () => {
  expect(toHex(leftPad(Uint8Array.of(1, 2), 4))).toBe('00000102')
  expect(toHex(leftPad(Uint8Array.of(1), 4))).toBe('00000001')
  expect(toHex(leftPad(Uint8Array.of(1, 2, 3, 4), 4))).toBe('01020304')
  for (const bad of [new Uint8Array(0), new Uint8Array(5)])
    expect(() => leftPad(bad, 4)).toThrow(new Malformed('tpm key: integer size'))
  const key = eccKey('P-521', Uint8Array.of(5), new Uint8Array(66).fill(1))
  expect(key).toEqual({
    ...{ type: 'ecc', curve: 'P-521' },
    ...{ x: new Uint8Array(66).with(65, 5), y: new Uint8Array(66).fill(1) },
  })
  for (const [curve, sizeBytes] of [
    ['P-256', 32],
    ['P-384', 48],
    ['P-521', 66],
  ] as const)
    expect(() => eccKey(curve, new Uint8Array(sizeBytes + 1), Uint8Array.of(1))).toThrow('tpm key: integer size')
})

describe('refused', () => {
  const rsa = { kty: 'RSA', n: url(modulus(256)), e: 'AQAB' }
  const [x, y] = POINTS['P-256'].map(bytes)
  const ec = { kty: 'EC', crv: 'P-256', x: url(x ?? modulus(1)), y: url(y ?? modulus(1)) }
  // Goal: each refusal names the member.
  test.each<[string, unknown, string]>([
    ['no object', 'x', 'tpm key: not a JWK'],
    ['null', null, 'tpm key: not a JWK'],
    ['another type', { ...rsa, kty: 'oct' }, 'tpm key: JWK type'],
    ['another exponent', { ...rsa, e: 'Aw' }, 'tpm key: RSA exponent'],
    ['no exponent', { ...rsa, e: undefined }, 'tpm key: JWK member e'],
    ['no base64url', { ...rsa, n: '+/' }, 'tpm key: JWK member n'],
    ['a long modulus', { ...rsa, n: 'A'.repeat(1028) }, 'tpm key: JWK member n'],
    ['a modulus of 768 bytes', { ...rsa, n: url(modulus(768)) }, 'tpm key: RSA modulus size'],
    ['another curve', { ...ec, crv: 'secp256k1' }, 'tpm key: unknown curve'],
    ['a short x', { ...ec, x: url(new Uint8Array(31)) }, 'tpm key: coordinate size'],
    ['a short y', { ...ec, y: url(new Uint8Array(31)) }, 'tpm key: coordinate size'],
    ['coordinates of another curve', { ...ec, crv: 'P-384' }, 'tpm key: coordinate size'],
    ['no y', { ...ec, y: 5 }, 'tpm key: JWK member y'],
  ])('a JWK with %s', (_, jwk, message) => {
    expect(() => decodeJwk(jwk)).toThrow(new Malformed(message))
  })

  const spki = encodeSpki(pointKey('P-256'))
  const rsaSpki = encodeSpki(rsaKey(modulus(256)))
  // Goal: each refusal names what is wrong.
  test.each<[string, Uint8Array, string]>([
    ['above 1024 bytes', new Uint8Array(1025).fill(0x30), 'tpm key: SPKI too long'],
    ['1024 bytes', new Uint8Array(1024).fill(0x30), 'tpm key: 974 bytes after its end'],
    ['a compressed point', spki.with(26, 2), 'tpm key: point'],
    ['another curve', spki.with(22, 8), 'tpm key: unknown algorithm or curve'],
    ['another exponent', rsaSpki.with(rsaSpki.length - 1, 3), 'tpm key: RSA exponent'],
    ['other parameters', rsaSpki.with(17, 4), 'tpm key: SPKI is not canonical'],
  ])('SPKI: %s', (_, der, message) => {
    expect(() => decodeSpki(der)).toThrow(message)
    expect(() => decodeSpki(der)).toThrow(Malformed)
  })

  // Goal: one block and nothing around it, up to 4096 characters.
  test('PEM', () => {
    const pem = `-----BEGIN PUBLIC KEY-----\n${toBase64(spki)}\n-----END PUBLIC KEY-----\n`
    expect(decodePemKey(pem.padEnd(4096))).toEqual(pointKey('P-256'))
    expect(() => decodePemKey(pem.padEnd(4097))).toThrow(new Malformed('tpm key: PEM too long'))
    for (const bad of ['', `x${pem}`, `${pem}x`, pem.replaceAll('PUBLIC KEY', 'CERTIFICATE'), pem.replace('MF', 'M=F')])
      expect(() => decodePemKey(bad)).toThrow('tpm key: not a PEM public key')
  })
})
