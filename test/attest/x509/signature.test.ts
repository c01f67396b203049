// Goal: RSASSA-PSS with SHA-384, a salt of 48 bytes, exponent 65537 and 2048 to 4096 bits is the only signature that
// counts (AMD 57230).

import { expect, test } from 'bun:test'
import { constants, generateKeyPairSync, sign } from 'node:crypto'
import type { Certificate } from '../../../src/attest/x509/certificate.ts'
import { algorithmFault, isSignedBy, pssSaltBytes } from '../../../src/attest/x509/signature.ts'
import { utf8 } from '../../../src/base/bytes.ts'

const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const spki = new Uint8Array(publicKey.export({ type: 'spki', format: 'der' }))
const signedBytes = utf8('signed bytes')

function signatureOf(saltLength = 48, hash = 'sha384'): Uint8Array {
  const padding = constants.RSA_PKCS1_PSS_PADDING
  return new Uint8Array(sign(hash, signedBytes, { key: privateKey, padding, saltLength }))
}

const issuerOf = (key: object) => {
  return {
    publicKey: { kind: 'rsa', spki, modulusBits: 2048, exponentHex: '010001', ...key },
  } as unknown as Certificate
}
const issuer = issuerOf({})
const signed = { signedBytes, signatureAlgorithm: 'rsa-pss-sha384', signature: signatureOf() } as const

test('goal: the salt, and faults of algorithm and key', () => {
  expect(pssSaltBytes).toBe(48)
  for (const modulusBits of [2048, 3072, 4096]) expect(algorithmFault(signed, issuerOf({ modulusBits }))).toBeNull()
  for (const modulusBits of [1024, 2047, 4097, 8192])
    expect(algorithmFault(signed, issuerOf({ modulusBits }))).toBe(`an RSA key of ${modulusBits} bits`)
  expect(algorithmFault(signed, issuerOf({ exponentHex: '03' }))).toBe('an RSA exponent other than 65537')
  expect(algorithmFault(signed, issuerOf({ kind: 'p-384' }))).toBe('the issuer has no RSA key')
  for (const signatureAlgorithm of ['ecdsa-sha384', 'unsupported'] as const)
    expect(algorithmFault({ ...signed, signatureAlgorithm }, issuer)).toBe(
      'not signed with RSASSA-PSS, SHA-384 and a salt of 48 bytes',
    )
})

test('goal: a signature holds over its own bytes, under its own key and salt', async () => {
  expect(await isSignedBy(signed, issuer)).toBe(true)
  expect(await isSignedBy({ ...signed, signedBytes: utf8('other bytes') }, issuer)).toBe(false)
  for (const saltLength of [20, 32, 47, 49])
    expect(await isSignedBy({ ...signed, signature: signatureOf(saltLength) }, issuer)).toBe(false)
  expect(await isSignedBy({ ...signed, signature: signatureOf(48, 'sha256') }, issuer)).toBe(false)
  expect(await isSignedBy({ ...signed, signature: new Uint8Array(0) }, issuer)).toBe(false)
  expect(await isSignedBy(signed, issuerOf({ exponentHex: '03' }))).toBe(false)
  expect(await isSignedBy({ ...signed, signatureAlgorithm: 'unsupported' }, issuer)).toBe(false)
  // The platform refuses a key that is none.
  expect(await isSignedBy(signed, issuerOf({ spki: new Uint8Array(4) }))).toBe(false)
})
