// The DER and PEM readers on hostile input: a value or Malformed, in bounded time, and never anything else.

import { describe, expect, test } from 'bun:test'
import { byteInteger, dottedOid, integerHex, readAll, readOne, TAG, timeMs } from '../../../src/attest/encoding/der.ts'
import { derBlocks, toPem } from '../../../src/attest/encoding/pem.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { decodeCertificate } from '../../../src/attest/x509/certificate.ts'
import { decodeCrl } from '../../../src/attest/x509/crl.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { vector } from '../../rigs/attest/chain-vectors.ts'

const bytes = (...all: number[]) => Uint8Array.from(all)
const ascii = (tag: number, text: string) => ({ tag, contents: utf8(text), whole: utf8(text) })

/** A decoder's outcome: 'ok', 'malformed', or an error that it must not throw. */
function outcomeOf(decode: () => unknown): string {
  try {
    decode()
    return 'ok'
  } catch (error) {
    return error instanceof Malformed ? 'malformed' : String(error)
  }
}

describe('DER', () => {
  test('integers', () => {
    // Goal: one encoding for each number, no negative ones.
    expect(integerHex(bytes(0), 'n')).toBe('00')
    expect(integerHex(bytes(0, 0x80), 'n')).toBe('80')
    expect(integerHex(bytes(1, 0, 1), 'n')).toBe('010001')
    expect(byteInteger(bytes(0, 0xff), 'n')).toBe(255)
    for (const bad of [bytes(), bytes(0, 0), bytes(0, 0x7f), bytes(0xff), bytes(0x80, 0)]) {
      expect(() => integerHex(bad, 'n')).toThrow(Malformed)
    }
    expect(() => byteInteger(bytes(1, 0), 'n')).toThrow(Malformed)
  })

  test('object identifiers', () => {
    // Goal: AMD's arcs come out as they are written; needless bytes, cut arcs and endless ones are refused.
    expect(dottedOid(bytes(0x2b, 6, 1, 4, 1, 0x9c, 0x78, 1, 3, 8), 'o')).toBe('1.3.6.1.4.1.3704.1.3.8')
    expect(dottedOid(bytes(0x55, 0x1d, 0x0f), 'o')).toBe('2.5.29.15')
    expect(dottedOid(bytes(0x88, 0x37), 'o')).toBe('2.999')
    const long = new Uint8Array(65).fill(1)
    for (const bad of [
      bytes(),
      bytes(0x80, 1),
      bytes(0x2b, 0x9c),
      bytes(0x2b, 0x80, 1),
      long,
      bytes(0x2b, 0xff, 0xff, 0xff, 0xff, 0x7f),
    ]) {
      expect(() => dottedOid(bad, 'o')).toThrow(Malformed)
    }
  })

  test('times', () => {
    // Goal: the two forms of RFC 5280, dates that exist, and nothing else.
    expect(timeMs(ascii(TAG.utcTime, '260228235959Z'), 't')).toBe(Date.UTC(2026, 1, 28, 23, 59, 59))
    expect(timeMs(ascii(TAG.utcTime, '500101000000Z'), 't')).toBe(Date.UTC(1950, 0, 1))
    expect(timeMs(ascii(TAG.generalizedTime, '20510101000000Z'), 't')).toBe(Date.UTC(2051, 0, 1))
    const bad = ['260229000000Z', '261301000000Z', '260100000000Z', '260101240000Z', '260101000060Z', '2601010000Z', '']
    const worse = ['260101000000', '260101000000+0000', '260101000000.5Z', '26010100000ZZ', ' 60101000000Z']
    for (const text of [...bad, ...worse]) expect(() => timeMs(ascii(TAG.utcTime, text), 't')).toThrow(Malformed)
    for (const text of ['20260230000000Z', '260101000000Z', '20260101000000.0Z', '99999999999999Z']) {
      expect(() => timeMs(ascii(TAG.generalizedTime, text), 't')).toThrow(Malformed)
    }
    expect(() => timeMs(ascii(TAG.ia5String, '260228235959Z'), 't')).toThrow(Malformed)
  })

  test('lengths', () => {
    // Goal: the shortest form only, nothing past the end, nothing after it.
    expect(readOne(bytes(4, 1, 9), 4, 'x').contents).toEqual(bytes(9))
    expect(readOne(bytes(4, 0x81, 0x80, ...new Array(128).fill(7)), 4, 'x').contents.length).toBe(128)
    const bad = [
      [],
      [4],
      [4, 1],
      [4, 2, 9],
      [4, 1, 9, 9],
      [4, 0x80, 9, 0, 0],
      [4, 0x81, 1, 9],
      [4, 0x82, 0, 1, 9],
      [4, 0x84, 0, 0, 0, 1, 9],
      [4, 0xff, 1],
      [4, 0x83, 0xff, 0xff, 0xff],
      [0x1f, 1, 9],
      [5, 1, 9],
    ]
    for (const item of bad) expect(() => readOne(bytes(...item), 4, 'x')).toThrow(Malformed)
    expect(readAll(new Uint8Array(0), 'x')).toEqual([])
  })
})

describe('PEM', () => {
  test('there and back', async () => {
    // Goal: a certificate keeps its bytes through PEM, as text, as bytes, and with carriage returns.
    const der = await vector('reports/milan-v2.vcek.der')
    const pem = toPem(der, 'CERTIFICATE')
    expect(Math.max(...pem.split('\n').map(line => line.length))).toBe(64)
    for (const form of [der, pem, utf8(pem), pem.replaceAll('\n', '\r\n'), `text\n${pem}text`]) {
      expect(derBlocks(form, 'CERTIFICATE', 'x')).toEqual([der])
    }
    expect(derBlocks(toPem(der, 'X509 CRL') + pem, 'CERTIFICATE', 'x')).toEqual([der])
  })

  test('what is refused', async () => {
    // Goal: nothing that is half a block, too many, too long, or another kind of thing.
    const pem = toPem(await vector('reports/milan-v2.vcek.der'), 'CERTIFICATE')
    const [begin = '', ...rest] = pem.split('\n')
    const bad: (string | Uint8Array)[] = [
      '',
      new Uint8Array(0),
      bytes(0xff, 0xfe),
      toPem(bytes(1), 'X509 CRL'),
      `${begin}\n`,
      rest.join('\n'),
      begin + pem,
      `${begin}\n${pem}`,
      pem.replace('END CERTIFICATE', 'END X509 CRL'),
      pem.replace('\n', '\n!'),
      pem.replace('\n', '\n='),
      pem.repeat(17),
      `${pem}${' '.repeat(65_537 - pem.length)}`,
      new Uint8Array(65_537).fill(0x30),
      new Uint8Array(32_769).fill(0x30),
    ]
    for (const item of bad) expect(outcomeOf(() => derBlocks(item, 'CERTIFICATE', 'x'))).toBe('malformed')
    expect(derBlocks(pem.repeat(16), 'CERTIFICATE', 'x').length).toBe(16)
    expect(derBlocks(`${pem}${' '.repeat(65_536 - pem.length)}`, 'CERTIFICATE', 'x').length).toBe(1)
    expect(derBlocks(new Uint8Array(32_768).fill(0x30), 'CERTIFICATE', 'x').length).toBe(1)
  })
})

test('certificates cut short and changed', async () => {
  // Goal: every truncation is Malformed; every changed byte gives a value or Malformed, as a certificate and as a CRL.
  const der = await vector('reports/turin-v5.chain.pem')
  const [vek = der] = derBlocks(der, 'CERTIFICATE', 'x')
  expect(decodeCertificate(vek).der).toEqual(vek)
  expect(outcomeOf(() => decodeCrl(vek))).toBe('malformed')
  for (let length = 0; length < vek.length; length += 1) {
    expect(outcomeOf(() => decodeCertificate(vek.subarray(0, length)))).toBe('malformed')
  }
  const seen = new Set<string>()
  for (let at = 0; at < vek.length; at += 1) {
    for (const flip of [0x01, 0x80, 0xff]) {
      const changed = vek.with(at, (vek[at] ?? 0) ^ flip)
      seen.add(outcomeOf(() => decodeCertificate(changed)))
      seen.add(outcomeOf(() => decodeCrl(changed)))
    }
  }
  expect([...seen].sort()).toEqual(['malformed', 'ok'])
})
