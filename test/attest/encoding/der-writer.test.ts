// Lengths and object identifiers that we write.

import { expect, test } from 'bun:test'
import { readOne, TAG } from '../../../src/attest/encoding/der.ts'
import { derElement, derOid } from '../../../src/attest/encoding/der-writer.ts'

// Goal: lengths have the octets that X.690 8.1.3 prescribes, and our strict reader takes them.
test.each([
  [0, '0400'],
  [127, '047f'],
  [128, '048180'],
  [255, '0481ff'],
  [256, '04820100'],
  [65_535, '0482ffff'],
  [65_536, '0483010000'],
])('the head of an element of %i bytes', (length, head) => {
  const whole = derElement(TAG.octetString, new Uint8Array(length))
  expect(Buffer.from(whole.subarray(0, head.length / 2)).toString('hex')).toBe(head)
  expect(readOne(whole, TAG.octetString, 'it').contents.length).toBe(length)
})

// Goal: an authority reads the identifiers that we mean (X.690 8.19).
test.each([
  ['2.5.29.17', '0603551d11'],
  ['1.2.840.113549.1.9.14', '06092a864886f70d01090e'],
  ['1.3.127.128.16383.16384', '06092b7f8100ff7f818000'],
])('the object identifier %s', (dotted, der) => {
  expect(Buffer.from(derOid(dotted)).toString('hex')).toBe(der)
})
