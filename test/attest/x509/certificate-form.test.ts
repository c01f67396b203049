// Goal: a certificate has exactly the members of RFC 5280 section 4.1 in their order; each one that is missing, doubled
// or of another form is refused by name, and an algorithm that differs in one parameter is not an allowed one.

import { describe, expect, test } from 'bun:test'
import { readOne, TAG } from '../../../src/attest/encoding/der.ts'
import { derElement, derOid } from '../../../src/attest/encoding/der-writer.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import {
  commonNameOf,
  decodeCertificate,
  extensionsOf,
  isCertificateAuthority,
  isSame,
  keyUsageOf,
  OID,
  signatureAlgorithmOf,
  spkiPoint,
} from '../../../src/attest/x509/certificate.ts'
import { concat, fromHex, toHex, utf8 } from '../../../src/base/bytes.ts'

const hex = (text: string) => fromHex(text) ?? new Uint8Array(0)
const seq = (...parts: Uint8Array[]) => derElement(0x30, ...parts)
const set = (...parts: Uint8Array[]) => derElement(0x31, ...parts)
const int = (text: string) => derElement(0x02, hex(text))
const bits = (...parts: Uint8Array[]) => derElement(0x03, hex('00'), ...parts)
const octets = (...parts: Uint8Array[]) => derElement(0x04, ...parts)
const nothing = derElement(0x05)
const context = (tag: number, ...parts: Uint8Array[]) => derElement(0xa0 + tag, ...parts)
const truth = hex('0101ff')
const untruth = hex('010100')
const time = (text: string) => derElement(0x17, utf8(text))

// RFC 5280, RFC 8017 appendix C, RFC 5480 and RFC 5758.
test('goal: the object identifiers', () => {
  expect(OID).toEqual({
    rsaEncryption: '1.2.840.113549.1.1.1',
    mgf1: '1.2.840.113549.1.1.8',
    rsassaPss: '1.2.840.113549.1.1.10',
    sha384: '2.16.840.1.101.3.4.2.2',
    ecdsaSha256: '1.2.840.10045.4.3.2',
    ecdsaSha384: '1.2.840.10045.4.3.3',
    ecPublicKey: '1.2.840.10045.2.1',
    secp256r1: '1.2.840.10045.3.1.7',
    secp384r1: '1.3.132.0.34',
    commonName: '2.5.4.3',
    subjectKeyIdentifier: '2.5.29.14',
    keyUsage: '2.5.29.15',
    basicConstraints: '2.5.29.19',
    crlNumber: '2.5.29.20',
    crlDistributionPoints: '2.5.29.31',
    authorityKeyIdentifier: '2.5.29.35',
  })
})

const sha384 = seq(derOid('2.16.840.1.101.3.4.2.2'), nothing)
const sha256 = seq(derOid('2.16.840.1.101.3.4.2.1'), nothing)
const mgf1 = (...parts: Uint8Array[]) => seq(derOid('1.2.840.113549.1.1.8'), ...parts)
const pssOid = derOid('1.2.840.113549.1.1.10')
const pss = (...parameters: Uint8Array[]) => seq(pssOid, seq(...parameters))
const hash = context(0, sha384)
const mask = context(1, mgf1(sha384))
const salt = context(2, int('30'))
const trailer = context(3, int('01'))

describe('signature algorithms', () => {
  const of = (identifier: Uint8Array) => signatureAlgorithmOf(readOne(identifier, TAG.sequence, 'it'))

  test('goal: what is allowed', () => {
    expect(of(pss(hash, mask, salt, trailer))).toBe('rsa-pss-sha384')
    expect(of(pss(hash, mask, salt))).toBe('rsa-pss-sha384')
    const bare = seq(derOid('2.16.840.1.101.3.4.2.2'))
    expect(of(pss(context(0, bare), context(1, mgf1(bare)), salt))).toBe('rsa-pss-sha384')
    expect(of(seq(derOid('1.2.840.10045.4.3.2')))).toBe('ecdsa-sha256')
    expect(of(seq(derOid('1.2.840.10045.4.3.3')))).toBe('ecdsa-sha384')
  })

  // Goal: one parameter alone makes it another algorithm.
  test.each<[string, Uint8Array]>([
    ['another identifier', seq(derOid('1.2.840.113549.1.1.11'), nothing)],
    ['no hash, which means SHA-1', pss(mask, salt, trailer)],
    ['no mask', pss(hash, salt, trailer)],
    ['no salt, which means 20 bytes', pss(hash, mask, trailer)],
    ['SHA-256', pss(context(0, sha256), mask, salt, trailer)],
    ['a hash with parameters', pss(context(0, seq(derOid('2.16.840.1.101.3.4.2.2'), int('01'))), mask, salt)],
    ['a hash with a long NULL', pss(context(0, seq(derOid('2.16.840.1.101.3.4.2.2'), hex('050100'))), mask, salt)],
    ['a hash with more', pss(context(0, seq(derOid('2.16.840.1.101.3.4.2.2'), nothing, nothing)), mask, salt)],
    [
      'a hash without identifier',
      pss(context(0, seq(octets(derOid('2.16.840.1.101.3.4.2.2').subarray(2)))), mask, salt),
    ],
    ['an empty hash', pss(context(0, seq()), mask, salt)],
    ['a mask with SHA-256', pss(hash, context(1, mgf1(sha256)), salt, trailer)],
    ['another mask', pss(hash, context(1, seq(derOid('1.2.840.113549.1.1.9'), sha384)), salt, trailer)],
    ['a mask without hash', pss(hash, context(1, mgf1()), salt, trailer)],
    ['a mask with a set', pss(hash, context(1, mgf1(set(derOid('2.16.840.1.101.3.4.2.2')))), salt, trailer)],
    ['a mask with more', pss(hash, context(1, mgf1(sha384, nothing)), salt, trailer)],
    [
      'a mask without identifier',
      pss(hash, context(1, seq(octets(derOid('1.2.840.113549.1.1.8').subarray(2)), sha384)), salt),
    ],
    ['an empty mask', pss(hash, context(1, seq()), salt, trailer)],
    ['a salt of 32 bytes', pss(hash, mask, context(2, int('20')), trailer)],
    ['another trailer', pss(hash, mask, salt, context(3, int('02')))],
  ])('%s', (_, identifier) => {
    expect(of(identifier)).toBe('unsupported')
  })

  // Goal: nothing stands beside the members.
  test.each<[string, Uint8Array]>([
    ['ECDSA with parameters', seq(derOid('1.2.840.10045.4.3.2'), nothing)],
    ['PSS with more', seq(pssOid, seq(hash, mask, salt), nothing)],
    ['parameters of PSS with more', pss(hash, mask, salt, trailer, nothing)],
    ['parameters in another order', pss(mask, hash, salt, trailer)],
  ])('%s', (_, identifier) => {
    expect(() => of(identifier)).toThrow('signature algorithm: an element that does not belong there')
  })

  test('goal: an identifier is there, and PSS has parameters', () => {
    expect(() => of(seq(nothing))).toThrow(new Malformed('signature algorithm: no OID'))
    expect(() => of(seq(pssOid))).toThrow(new Malformed('signature algorithm: no PSS parameters'))
  })
})

const modulus = (first: string, sizeBytes: number) => int(`${first}${'55'.repeat(sizeBytes - 1)}`)
const rsaAlgorithm = seq(derOid('1.2.840.113549.1.1.1'), nothing)
const rsa = (...numbers: Uint8Array[]) => seq(rsaAlgorithm, bits(seq(...numbers)))
const ec = (curve: Uint8Array, ...point: Uint8Array[]) => seq(seq(derOid('1.2.840.10045.2.1'), curve), bits(...point))
const p256 = derOid('1.2.840.10045.3.1.7')
const p384 = derOid('1.3.132.0.34')
const point = (head: number, sizeBytes: number) => concat(Uint8Array.of(head), new Uint8Array(sizeBytes - 1).fill(7))

const extension = (oid: string, value: Uint8Array, ...flag: Uint8Array[]) => seq(derOid(oid), ...flag, octets(value))
const usage = extension('2.5.29.15', hex('03020106'), truth)

const PARTS = {
  version: context(0, int('02')),
  serial: int('00d9'),
  algorithm: pss(hash, mask, salt, trailer),
  issuer: seq(set(seq(derOid('2.5.4.3'), derElement(0x0c, utf8('issuer'))))),
  validity: seq(time('200102030405Z'), time('450607080910Z')),
  subject: seq(set(seq(derOid('2.5.4.3'), derElement(0x0c, utf8('subject'))))),
  publicKey: rsa(modulus('0080', 256), int('010001')),
  extensions: context(3, seq(usage)),
}
type Changes = Partial<typeof PARTS> & { readonly outer?: readonly Uint8Array[]; readonly more?: readonly Uint8Array[] }

function certificate({ outer, more = [], ...changes }: Changes): Uint8Array {
  const tbs = seq(...Object.values({ ...PARTS, ...changes }), ...more)
  return seq(tbs, ...(outer ?? [changes.algorithm ?? PARTS.algorithm, bits(hex('abcd'))]))
}

describe('certificates', () => {
  test('goal: every member comes out', () => {
    const { der, signedBytes, publicKey, extensions, issuer, subject, signature, ...rest } = decodeCertificate(
      certificate({}),
    )
    expect(der).toEqual(certificate({}))
    expect(signedBytes).toEqual(seq(...Object.values(PARTS)))
    expect(rest).toEqual({
      serial: 'd9',
      signatureAlgorithm: 'rsa-pss-sha384',
      notBeforeMs: Date.UTC(2020, 0, 2, 3, 4, 5),
      notAfterMs: Date.UTC(2045, 5, 7, 8, 9, 10),
    })
    expect([issuer, subject].map(commonNameOf)).toEqual(['issuer', 'subject'])
    expect(publicKey).toEqual({ kind: 'rsa', spki: PARTS.publicKey, modulusBits: 2048, exponentHex: '010001' })
    expect([...extensions]).toEqual([['2.5.29.15', { critical: true, value: hex('03020106') }]])
    expect(toHex(signature)).toBe('abcd')
  })

  // Goal: each refusal names the member.
  const otherAlgorithm = pss(hash, mask, salt)
  // Goal: each refusal names the member.
  test.each<[string, Changes, string]>([
    ['version 2', { version: context(0, int('01')) }, 'certificate: not version 3'],
    [
      'another algorithm outside',
      { outer: [otherAlgorithm, bits()] },
      'certificate: two different signature algorithms',
    ],
    ['something after the signature', { outer: [PARTS.algorithm, bits(), nothing] }, 'certificate: an element that'],
    ['something after the extensions', { more: [nothing] }, 'certificate: an element that does not belong there'],
    ['one time', { validity: seq(time('200102030405Z')) }, 'certificate: not two times'],
    ['no time', { validity: seq() }, 'certificate: not two times'],
    ['three times', { validity: seq(...['20', '21', '22'].map(y => time(`${y}0102030405Z`))) }, 'not two times'],
    ['a key without algorithm', { publicKey: seq(seq(nothing), bits()) }, 'public key: no algorithm'],
    ['a key with an empty algorithm', { publicKey: seq(seq(), bits()) }, 'public key: no algorithm'],
    [
      'a key with more',
      { publicKey: seq(rsaAlgorithm, bits(seq(int('11'), int('03'))), nothing) },
      'public key: an element',
    ],
    ['an RSA key without exponent', { publicKey: rsa(modulus('0080', 256)) }, 'public key: not an RSA key'],
    ['an RSA key without modulus', { publicKey: rsa(octets(), int('03')) }, 'public key: not an RSA key'],
    ['an RSA key with another exponent', { publicKey: rsa(int('11'), octets()) }, 'public key: not an RSA key'],
    ['an RSA key with more', { publicKey: rsa(int('11'), int('03'), int('05')) }, 'public key: not an RSA key'],
    ['a compressed point', { publicKey: ec(p384, point(2, 97)) }, 'public key: not an uncompressed P-384 point'],
    ['a short point', { publicKey: ec(p384, point(4, 96)) }, 'public key: not an uncompressed P-384 point'],
    ['a point of P-384 on P-256', { publicKey: ec(p256, point(4, 97)) }, 'public key: not an uncompressed P-256 point'],
  ])('%s', (_, changes, message) => {
    expect(() => decodeCertificate(certificate(changes))).toThrow(message)
    expect(() => decodeCertificate(certificate(changes))).toThrow(Malformed)
  })

  test('goal: keys of each kind', () => {
    const keyOf = (publicKey: Uint8Array) => decodeCertificate(certificate({ publicKey })).publicKey
    const bitsOf = (publicKey: Uint8Array) => {
      const key = keyOf(publicKey)
      return key.kind === 'rsa' ? key.modulusBits : null
    }
    expect(bitsOf(rsa(modulus('01', 256), int('03')))).toBe(2041)
    expect(bitsOf(rsa(modulus('7f', 256), int('03')))).toBe(2047)
    expect(bitsOf(rsa(modulus('0080', 512), int('03')))).toBe(4096)
    expect(keyOf(ec(p256, point(4, 65)))).toMatchObject({ kind: 'p-256', point: point(4, 65) })
    expect(keyOf(ec(p384, point(4, 97)))).toMatchObject({ kind: 'p-384', point: point(4, 97) })
    for (const spki of [
      ec(derOid('1.3.132.0.35'), point(4, 133)),
      ec(nothing, point(4, 97)),
      seq(seq(derOid('1.2.840.10045.2.1')), bits(point(4, 97))),
      seq(seq(derOid('1.3.132.1.12'), p384), bits(point(4, 97))),
    ])
      expect(keyOf(spki)).toEqual({ kind: 'unsupported', spki })
    expect(spkiPoint(ec(p384, point(4, 97)))).toEqual(point(4, 97))
    expect(spkiPoint(ec(p256, point(4, 65)))).toBeNull()
    expect(spkiPoint(PARTS.publicKey)).toBeNull()
  })
})

describe('extensions', () => {
  const read = (...list: Uint8Array[]) => extensionsOf(seq(...list), 'it')
  const many = (count: number) => Array.from({ length: count }, (_, at) => extension(`1.2.${at}`, hex('00')))

  test('goal: critical or not, and up to 32 of them', () => {
    expect([...read(usage, extension('1.2.3', hex('05')))]).toEqual([
      ['2.5.29.15', { critical: true, value: hex('03020106') }],
      ['1.2.3', { critical: false, value: hex('05') }],
    ])
    expect(read(...many(32)).size).toBe(32)
    expect(read(...many(1)).size).toBe(1)
  })

  // Goal: each refusal names the extension.
  test.each<[string, Uint8Array[], string]>([
    ['none', [], 'it: 0 extensions'],
    ['33', many(33), 'it: 33 extensions'],
    ['an explicit FALSE', [extension('1.2.3', hex('05'), untruth)], 'it extension 1.2.3: an explicit FALSE'],
    ['twice', [usage, usage], 'it extension 2.5.29.15: twice'],
    ['more than a value', [seq(derOid('1.2.3'), octets(), nothing)], 'it extension: an element that does not belong'],
    ['no value', [seq(derOid('1.2.3'), truth)], 'it extension: no value'],
  ])('%s', (_, list, message) => {
    expect(() => read(...list)).toThrow(message)
  })

  test('goal: an authority is one that says so', () => {
    const says = (...members: Uint8Array[]) =>
      isCertificateAuthority(read(extension('2.5.29.19', seq(...members), truth)))
    expect(isCertificateAuthority(read(usage))).toBe(false)
    expect([says(), says(untruth), says(int('00'))]).toEqual([false, false, false])
    expect([says(truth), says(truth, int('00'))]).toEqual([true, true])
    expect(() => says(truth, int('00'), nothing)).toThrow('basic constraints: an element that does not belong there')
    expect(() => says(truth, int('80'))).toThrow('basic constraints: a negative integer')
  })

  test('goal: key usage is bits 5 and 6 of the first byte', () => {
    const says = (contents: string) => keyUsageOf(read(extension('2.5.29.15', derElement(0x03, hex(contents)))))
    expect(keyUsageOf(read(extension('1.2.3', hex('00'))))).toBeNull()
    expect(says('0204')).toEqual({ certSign: true, crlSign: false })
    expect(says('0102')).toEqual({ certSign: false, crlSign: true })
    expect(says('00f9')).toEqual({ certSign: false, crlSign: false })
    expect(says('070680')).toEqual({ certSign: true, crlSign: true })
    for (const bad of ['', '00', '07060000']) expect(() => says(bad)).toThrow('key usage: not a bit string')
  })
})

test('goal: a common name, or a placeholder', () => {
  const name = (oid: Uint8Array, ...value: Uint8Array[]) => seq(set(seq(oid, ...value)))
  const text = derElement(0x0c, utf8('a'))
  expect(commonNameOf(name(derOid('2.5.4.3'), text))).toBe('a')
  for (const other of [
    name(derOid('2.5.4.10'), text),
    name(derOid('2.5.4.3')),
    name(octets(hex('550403')), text),
    seq(),
  ])
    expect(commonNameOf(other)).toBe('(no common name)')
})

test('goal: equal contents', () => {
  expect(isSame(hex('0102'), hex('0102'))).toBe(true)
  for (const other of ['01', '010203', '0103', '0202']) expect(isSame(hex('0102'), hex(other))).toBe(false)
})
