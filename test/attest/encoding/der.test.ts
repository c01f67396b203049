// Goal: the reader of DER takes the one form of each value that X.690 allows, and names what is wrong with any other.

import { describe, expect, test } from 'bun:test'
import {
  asciiOf,
  booleanOf,
  byteInteger,
  DerFields,
  dottedOid,
  integerBytes,
  readAll,
  readOne,
  readSequence,
  TAG,
  timeMs,
  wholeBits,
} from '../../../src/attest/encoding/der.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { fromHex, toHex, utf8 } from '../../../src/base/bytes.ts'

const hex = (text: string) => fromHex(text) ?? new Uint8Array(0)

// Goal: the identifier octets of X.690 section 8.1.2 for the universal types, and the constructed context tags.
test('tags', () => {
  expect(TAG).toEqual({
    ...{ boolean: 1, integer: 2, bitString: 3, octetString: 4, null: 5, oid: 6, utf8String: 12, ia5String: 22 },
    ...{ utcTime: 23, generalizedTime: 24, sequence: 48, set: 49, context0: 160, context1: 161 },
    ...{ context2: 162, context3: 163 },
  })
})

describe('elements', () => {
  const element = (head: string, length: number) => {
    const start = hex(head)
    const whole = new Uint8Array(start.length + length)
    whole.set(start)
    return whole
  }

  // Goal: lengths of each form, from the shortest to the longest that it may have.
  test.each([
    ['0400', 0],
    ['047f', 127],
    ['048180', 128],
    ['0481ff', 255],
    ['04820100', 256],
    ['0482ffff', 65_535],
    ['0483010000', 65_536],
  ])('%s has %i bytes', (head, length) => {
    const read = readOne(element(head, length), 4, 'it')
    expect([read.tag, read.contents.length, read.whole.length]).toEqual([4, length, length + head.length / 2])
  })

  // Goal: each refusal names what is wrong.
  test.each([
    ['', 0, 'it: ends inside an element'],
    ['04', 0, 'it: ends inside an element'],
    ['0402', 1, 'it: ends inside an element'],
    ['048180', 127, 'it: ends inside an element'],
    ['0401', 2, 'it: 1 bytes after its end'],
    ['0501', 1, 'it: tag 05, not 04'],
    ['1f01', 1, 'it: a tag of several bytes'],
    ['bf01', 1, 'it: a tag of several bytes'],
    ['0480', 1, 'it: a length of 0 bytes'],
    ['048400000001', 1, 'it: a length of 4 bytes'],
    ['04817f', 127, 'it: a length that is not in its shortest form'],
    ['048200ff', 255, 'it: a length that is not in its shortest form'],
    ['048300ffff', 65_535, 'it: a length that is not in its shortest form'],
  ])('%s and %i bytes', (head, length, message) => {
    expect(() => readOne(element(head, length), 4, 'it')).toThrow(new Malformed(message))
  })

  test('in a row, and in a sequence', () => {
    // Goal: each element in order, with its own bytes, and no half one at the end.
    const row = readAll(hex('0201050500'), 'it')
    expect(row.map(({ tag, contents, whole }) => [tag, toHex(contents), toHex(whole)])).toEqual([
      [2, '05', '020105'],
      [5, '', '0500'],
    ])
    expect(readSequence(hex('30050201050500'), 'it').map(({ tag }) => tag)).toEqual([2, 5])
    expect(() => readSequence(hex('31050201050500'), 'it')).toThrow('it: tag 31, not 30')
    expect(() => readAll(hex('02010505'), 'it')).toThrow('it: ends inside an element')
  })

  test('fields', () => {
    // Goal: required ones in their order, optional ones by tag, and nothing after them.
    const fields = new DerFields(readAll(hex('020105a000'), 'it'), 'it')
    expect(fields.optional(TAG.context0)).toBeNull()
    expect(() => fields.take(TAG.oid, 'OID')).toThrow(new Malformed('it: no OID'))
    expect(toHex(fields.take(TAG.integer, 'number').contents)).toBe('05')
    expect(() => fields.end()).toThrow(new Malformed('it: an element that does not belong there'))
    expect(fields.optional(TAG.context0)?.tag).toBe(0xa0)
    expect(() => fields.end()).not.toThrow()
    expect(fields.optional(TAG.context0)).toBeNull()
  })
})

describe('values', () => {
  test('integers', () => {
    // Goal: the shortest form, which comes out without its sign byte, and at most 1025 bytes.
    expect(toHex(integerBytes(hex('00'), 'it'))).toBe('00')
    expect(toHex(integerBytes(hex('7f'), 'it'))).toBe('7f')
    expect(toHex(integerBytes(hex('0080'), 'it'))).toBe('80')
    expect(toHex(integerBytes(hex('0100'), 'it'))).toBe('0100')
    expect(toHex(integerBytes(hex('017f'), 'it'))).toBe('017f')
    expect(integerBytes(new Uint8Array(1025).fill(1), 'it').length).toBe(1025)
    expect(() => integerBytes(new Uint8Array(1026).fill(1), 'it')).toThrow('it: an integer of 1026 bytes')
    expect(() => integerBytes(hex(''), 'it')).toThrow('it: an integer of 0 bytes')
    for (const negative of ['80', 'ff', '8000']) expect(() => integerBytes(hex(negative), 'it')).toThrow('negative')
    for (const long of ['0000', '007f']) expect(() => integerBytes(hex(long), 'it')).toThrow('not in its shortest form')
    expect([hex('00'), hex('7f'), hex('0080'), hex('00ff')].map(value => byteInteger(value, 'it'))).toEqual([
      0, 127, 128, 255,
    ])
    for (const large of ['0100', '7fff', '00ffff'])
      expect(() => byteInteger(hex(large), 'it')).toThrow('it: more than 255')
  })

  // Goal: X.690 section 8.19: the first two arcs share a number, each arc is base 128 with its top bit set but last.
  test.each([
    ['00', '0.0'],
    ['27', '0.39'],
    ['28', '1.0'],
    ['4f', '1.39'],
    ['50', '2.0'],
    ['78', '2.40'],
    ['8837', '2.999'],
    ['2a864886f70d010101', '1.2.840.113549.1.1.1'],
    ['2b7f8100ff7f818000', '1.3.127.128.16383.16384'],
    ['2b8fffffff7f', '1.3.4294967295'],
  ])('the object identifier %s is %s', (contents, dotted) => {
    expect(dottedOid(hex(contents), 'it')).toBe(dotted)
  })

  // Goal: each refusal of an identifier names what is wrong.
  test.each([
    ['', 'it: an OID of 0 bytes'],
    ['01'.repeat(65), 'it: an OID of 65 bytes'],
    ['8001', 'it: an OID arc that is not in its shortest form'],
    ['2b8001', 'it: an OID arc that is not in its shortest form'],
    ['2b9080808000', 'it: an OID arc above 32 bits'],
    ['2b86', 'it: an OID that ends inside an arc'],
  ])('the object identifier %s is refused', (contents, message) => {
    expect(() => dottedOid(hex(contents), 'it')).toThrow(new Malformed(message))
  })

  test('the longest object identifier', () => {
    // Goal: 64 bytes are read, and a byte of 0x80 inside an arc is not its beginning.
    expect(dottedOid(new Uint8Array(64).fill(1), 'it').split('.').length).toBe(65)
    expect(dottedOid(hex('2b818000'), 'it')).toBe('1.3.16384')
  })

  test('booleans and bit strings', () => {
    // Goal: 00 and FF alone, one byte of them; a bit string of whole bytes begins with 00.
    expect([booleanOf(hex('00'), 'it'), booleanOf(hex('ff'), 'it')]).toEqual([false, true])
    for (const bad of ['', '01', 'fe', '0000', 'ffff'])
      expect(() => booleanOf(hex(bad), 'it')).toThrow('not a DER boolean')
    expect(toHex(wholeBits(hex('00ff01'), 'it'))).toBe('ff01')
    expect(toHex(wholeBits(hex('00'), 'it'))).toBe('')
    for (const bad of ['', '01fe', '07']) expect(() => wholeBits(hex(bad), 'it')).toThrow('not whole bytes')
  })

  test('times', () => {
    // Goal: RFC 5280 section 4.1.2.5.1: 50 to 99 are of the 20th century, 00 to 49 of the 21st.
    const time = (tag: number, text: string) => {
      return timeMs({ tag, contents: utf8(text), whole: utf8(text) }, 'it')
    }
    expect(new Date(time(TAG.utcTime, '491231235958Z')).toISOString()).toBe('2049-12-31T23:59:58.000Z')
    expect(new Date(time(TAG.utcTime, '500201030405Z')).toISOString()).toBe('1950-02-01T03:04:05.000Z')
    expect(new Date(time(TAG.utcTime, '991231000000Z')).toISOString()).toBe('1999-12-31T00:00:00.000Z')
    expect(new Date(time(TAG.generalizedTime, '21240229235959Z')).toISOString()).toBe('2124-02-29T23:59:59.000Z')
    expect(() => time(TAG.octetString, '500201030405Z')).toThrow('it: tag 04 is no time')
    expect(() => time(TAG.generalizedTime, '202402292359599Z')).toThrow('it: a time of 16 bytes')
    expect(() => time(TAG.utcTime, '230229000000Z')).toThrow('it: not a time')
    expect(() => time(TAG.generalizedTime, '230228000000Z')).toThrow('it: not a time')
  })

  test('text', () => {
    // Goal: from the space to the tilde, and at most 256 of them.
    expect(asciiOf(utf8(' ~'), 'it')).toBe(' ~')
    expect(asciiOf(new Uint8Array(256).fill(0x41), 'it').length).toBe(256)
    expect(() => asciiOf(new Uint8Array(257).fill(0x41), 'it')).toThrow('it: a text of 257 bytes')
    for (const bad of ['1f', '7f', '80', '4100'])
      expect(() => asciiOf(hex(bad), 'it')).toThrow('it: not printable ASCII')
  })
})
