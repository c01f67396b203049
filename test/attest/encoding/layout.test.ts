// The one reader and writer of fixed records: every field from its own offset, and no value that does not fit.

import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import {
  isZero,
  type Layout,
  layoutBytes,
  readFields,
  readRecord,
  type Values,
  writeFields,
  writeRecord,
} from '../../../src/attest/encoding/layout.ts'
import { Malformed } from '../../../src/attest/malformed.ts'

const LAYOUT = { a: [0, 1], b: [1, 2], c: [3, 4], d: [7, 8], e: [15, 3] } as const satisfies Layout
const GAPS = { last: [9, 2], first: [2, 4] } as const satisfies Layout

const bytes = Uint8Array.from({ length: 18 }, (_, at) => at + 1)
const values: Values<typeof LAYOUT> = {
  a: 1,
  b: 0x0302,
  c: 0x07060504,
  d: 0x0f0e0d0c0b0a0908n,
  e: Uint8Array.of(16, 17, 18),
}

describe('records', () => {
  // Goal: each size is read little-endian from its own offset, and written back to the same bytes.
  test('by hand', () => {
    expect(layoutBytes(LAYOUT)).toBe(18)
    expect(readRecord('test', bytes, LAYOUT)).toEqual(values)
    expect(writeRecord('test', LAYOUT, values)).toEqual(bytes)
  })

  // Goal: what is written is read back, whatever the values, also from a view into longer bytes.
  test('round trip', () => {
    const property = fc.property(fc.uint8Array({ minLength: 18, maxLength: 18 }), fc.nat(9), (bytes, offset) => {
      const whole = new Uint8Array(offset + 18 + 5).fill(0xaa)
      whole.set(bytes, offset)
      const read = readRecord('test', whole.subarray(offset, offset + 18), LAYOUT)
      expect(writeRecord('test', LAYOUT, read)).toEqual(bytes)
      expect(readFields('test', whole.subarray(offset), LAYOUT)).toEqual(read)
    })
    fc.assert(property)
  })

  // Goal: a record has exactly its length; fields may have more after them, but never less.
  test('lengths', () => {
    for (const length of [0, 17]) {
      expect(() => readRecord('test', bytes.subarray(0, length), LAYOUT)).toThrow(`test: ${length} bytes instead of 18`)
      expect(() => readFields('test', bytes.subarray(0, length), LAYOUT)).toThrow('test: truncated')
    }
    expect(() => readRecord('test', new Uint8Array(19), LAYOUT)).toThrow(Malformed)
    expect(readFields('test', new Uint8Array(19), LAYOUT).a).toBe(0)
  })

  // Goal: what was read does not change with the caller's bytes, also when these are a Buffer, whose `slice` copies
  // nothing.
  test('copies', () => {
    for (const own of [bytes.slice(), Buffer.from(bytes)]) {
      const read = readRecord('test', own, LAYOUT)
      own.fill(0)
      expect(read.e).toEqual(values.e)
    }
  })

  // Goal: a layout with gaps, in any order, reads and writes its own fields and leaves all other bytes as they are.
  test('gaps', () => {
    expect(layoutBytes(GAPS)).toBe(11)
    const into = new Uint8Array(12).fill(0xff)
    writeFields('test', into, GAPS, { last: 0x0102 })
    expect([...into]).toEqual([255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 1, 255])
    expect(readFields('test', into, GAPS)).toEqual({ last: 0x0102, first: 0xffffffff })
    expect(() => writeFields('test', into.subarray(0, 10), GAPS, { last: 0 })).toThrow('test: last does not fit')
  })
})

// Goal: a value of another type, size or sign than its field's is refused, and so is a missing one.
test.each([
  ['a', 256],
  ['a', -1],
  ['b', 0x10000],
  ['c', 2 ** 32],
  ['c', 0.5],
  ['c', Number.NaN],
  ['c', 1n],
  ['d', 1n << 64n],
  ['d', -1n],
  ['d', 1],
  ['d', new Uint8Array(8)],
  ['e', new Uint8Array(2)],
  ['e', new Uint8Array(4)],
  ['e', 1],
  ['c', undefined],
] as const)('%s: %p does not fit', (field, value) => {
  const wrong = { ...values, [field]: value } as unknown as Values<typeof LAYOUT>
  expect(() => writeRecord('test', LAYOUT, wrong)).toThrow(Malformed)
})

// Goal: one byte that is not zero is seen, wherever it is.
test('isZero', () => {
  expect(isZero(new Uint8Array(0)) && isZero(new Uint8Array(5))).toBe(true)
  for (let at = 0; at < 5; at += 1) expect(isZero(new Uint8Array(5).fill(1, at, at + 1))).toBe(false)
})
