// Goal: our CBOR is the one that others write and read, and no bytes that another encoder would not have written pass.

import { describe, expect, test } from 'bun:test'
import { Encoder } from 'cbor-x/encode'
import { casesOf } from '../../../scripts/rigs/all.ts'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { type CborValue, decodeCbor, encodeCbor } from '../../../src/attest/encoding/cbor.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { fromHex, toHex } from '../../../src/base/bytes.ts'

const limits = { sizeBytesMax: 65_536, depthMax: 4 }
const roomy = { ...limits, sizeBytesMax: 2 ** 24 }
const other = new Encoder({ mapsAsObjects: false, useRecords: false, tagUint8Array: false, variableMapSize: true })

function hex(text: string): Uint8Array {
  return fromHex(text) ?? new Uint8Array(0)
}

// Goal: the encodings are those of the standard.
describe('both ways', () => {
  // RFC 8949 appendix A, and the ends of each length of a head.
  test.each([
    [0, '00'],
    [23, '17'],
    [24, '1818'],
    [255, '18ff'],
    [256, '190100'],
    [65_535, '19ffff'],
    [65_536, '1a00010000'],
    [2 ** 32 - 1, '1affffffff'],
    [2 ** 32, '1b0000000100000000'],
    [Number.MAX_SAFE_INTEGER, '1b001fffffffffffff'],
    [null, 'f6'],
    ['', '60'],
    ['IETF', '6449455446'],
    ['\u6c34', '63e6b0b4'],
    ['\ufeffa', '64efbbbf61'],
    ['a'.repeat(24), `7818${'61'.repeat(24)}`],
    [Uint8Array.of(1, 2, 3, 4), '4401020304'],
    [[], '80'],
    [[1, [2, 3]], '8201820203'],
    [new Map(), 'a0'],
    // Shorter keys come first, whatever their letters.
    [
      new Map<string, CborValue>([
        ['b', [2, 3]],
        ['aa', 2],
      ]),
      'a2616282020362616102',
    ],
  ] as readonly (readonly [CborValue, string])[])('%p', (value, text) => {
    expect(toHex(encodeCbor(value))).toBe(text)
    expect(decodeCbor(hex(text), limits)).toEqual(value)
  })
})

test('goal: cbor-x reads what we write, and writes what we read, for values of every shape', () => {
  const below = createDraw(7)
  const draw = (depth: number): CborValue => {
    const kind = below(depth === 0 ? 4 : 6)
    if (kind === 0) return null
    if (kind === 1) return Math.floor(2 ** below(53)) - below(2)
    if (kind === 2) return '€a'.repeat(below(200))
    if (kind === 3) return Uint8Array.from({ length: below(300) }, () => below(256))
    if (kind === 4) return Array.from({ length: below(30) }, () => draw(depth - 1))
    const keys = Array.from({ length: below(30) }, () => 'k'.repeat(1 + below(30))).sort((a, b) => a.length - b.length)
    return new Map(keys.map(key => [key, draw(depth - 1)]))
  }
  for (let i = 0; i < casesOf(300); i += 1) {
    const value = draw(3)
    const bytes = encodeCbor(value)
    expect(decodeCbor(bytes, roomy)).toEqual(value)
    expect(plain(other.decode(Uint8Array.from(bytes)))).toEqual(value)
    expect(toHex(new Uint8Array(other.encode(forOther(value))))).toBe(toHex(bytes))
  }
})

/** cbor-x writes a float for a large number that is no BigInt. */
function forOther(value: CborValue): unknown {
  if (typeof value === 'number') return value < 2 ** 32 ? value : BigInt(value)
  if (value instanceof Map) return new Map([...value].map(([key, inner]) => [key, forOther(inner)]))
  return Array.isArray(value) ? value.map(forOther) : value
}

function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value)
  if (value instanceof Uint8Array) return Uint8Array.from(value)
  if (value instanceof Map) return new Map([...value].map(([key, inner]) => [key, plain(inner)]))
  return Array.isArray(value) ? value.map(plain) : value
}

// Goal: one value has one encoding; every other one is Malformed.
describe('refused', () => {
  test.each([
    ['nothing', ''],
    ['an integer in a longer head', '1817'],
    ['text in a longer head', '780161'],
    ['eight bytes where four do', '1b0000000000000001'],
    ['an integer beyond the safe ones', '1b0020000000000000'],
    ['a negative integer', '20'],
    ['a float', 'f93c00'],
    ['true', 'f5'],
    ['undefined', 'f7'],
    ['a tag', 'c100'],
    ['an indefinite length', '9f00ff'],
    ['text that is not UTF-8', '61ff'],
    ['a surrogate in UTF-8', '63eda080'],
    ['text cut short', '6261'],
    ['bytes cut short', '4401'],
    ['a head cut short', '19ff'],
    ['an array that promises more than there is', '9affffffff00'],
    ['a map that promises more than there is', 'baffffffff'],
    ['a key that is a number', 'a10000'],
    ['a key that is bytes', 'a1416100'],
    ['a key twice', 'a2616100616101'],
    ['keys out of order', 'a2616200616101'],
    ['something after the value', '0000'],
    ['arrays too deep', '8181818180'],
  ])('%s', (_, text) => {
    expect(() => decodeCbor(hex(text), limits)).toThrow(Malformed)
  })

  test.each([[-1], [-0], [1.5], [Number.NaN], [2 ** 53], ['\ud800'], [new Map([['\ud800', 1]])]])(
    'to write %p',
    value => {
      expect(() => encodeCbor(value)).toThrow(Malformed)
    },
  )
})

test('goal: what is read shares no memory with its bytes', () => {
  const bytes = encodeCbor(Uint8Array.of(1, 2, 3))
  const read = decodeCbor(bytes, limits)
  bytes.fill(9)
  expect(read).toEqual(Uint8Array.of(1, 2, 3))
})

// Goal: each refusal has its reason, and comes before anything is read that the bytes do not hold.
test.each([
  ['', 'cbor: truncated'],
  ['8161', 'cbor: truncated text string'],
  ['a16161', 'cbor: truncated'],
  ['1817', 'cbor: head is not the shortest'],
  ['1900ff', 'cbor: head is not the shortest'],
  ['1a0000ffff', 'cbor: head is not the shortest'],
  ['1b00000000ffffffff', 'cbor: head is not the shortest'],
  ['780161', 'cbor: head is not the shortest'],
  ['1b0020000000000000', 'cbor: integer out of range'],
  ['1c', 'cbor: indefinite length or reserved head'],
  ['1f', 'cbor: indefinite length or reserved head'],
  ['5c', 'cbor: indefinite length or reserved head'],
  ['18', 'cbor: truncated head'],
  ['19ff', 'cbor: truncated head'],
  ['1b00000000000000', 'cbor: truncated head'],
  ['811a000100', 'cbor: truncated head'],
  ['4401', 'cbor: truncated byte string'],
  ['824401', 'cbor: truncated byte string'],
  ['6261', 'cbor: truncated text string'],
  ['8201', 'cbor: truncated array'],
  ['9affffffff00', 'cbor: truncated array'],
  ['a160', 'cbor: truncated map'],
  ['a2616100', 'cbor: truncated map'],
  ['a2600060', 'cbor: truncated map'],
  ['baffffffff', 'cbor: truncated map'],
  ['a10000', 'cbor: a key that is not text'],
  ['a1f600', 'cbor: a key that is not text'],
  ['a18000', 'cbor: nested too deeply'],
  ['a260006000', 'cbor: keys repeated or out of order'],
  ['a2616200616101', 'cbor: keys repeated or out of order'],
  ['a26161006000', 'cbor: keys repeated or out of order'],
  ['a26262610062616200', 'cbor: keys repeated or out of order'],
  ['0000', 'cbor: trailing bytes'],
  ['20', 'cbor: a kind of item that statements do not use'],
  ['8181818180', 'cbor: nested too deeply'],
  ['a160a160a160a160a0', 'cbor: nested too deeply'],
  ['81a16081a16080', 'cbor: nested too deeply'],
])('%s is refused: %s', (text, message) => {
  expect(() => decodeCbor(hex(text), limits)).toThrow(new Malformed(message))
})

test('goal: keys are written in the order of their encodings, whatever theirs', () => {
  const all = ['ba', 'c', 'ab', '', 'aa'].map((key, at) => [key, at] as const)
  expect(toHex(encodeCbor(new Map(all)))).toBe('a5600361630162616104626162026262' + '6100')
})

test('goal: the ends of what is allowed', () => {
  expect(decodeCbor(hex('81818180'), limits)).toEqual([[[[]]]])
  expect(decodeCbor(hex('a160a160a160a0'), limits)).toEqual(
    new Map([['', new Map([['', new Map([['', new Map()]])]])]]),
  )
  expect(decodeCbor(hex('a26000616101'), limits)).toEqual(
    new Map([
      ['', 0],
      ['a', 1],
    ]),
  )
  expect(decodeCbor(hex('a16000'), limits)).toEqual(new Map([['', 0]]))
  expect(decodeCbor(hex('80'), { sizeBytesMax: 1, depthMax: 1 })).toEqual([])
  expect(() => decodeCbor(hex('80'), { sizeBytesMax: 1, depthMax: 0 })).toThrow('cbor: nested too deeply')
  expect(decodeCbor(hex('4100'), { sizeBytesMax: 2, depthMax: 0 })).toEqual(Uint8Array.of(0))
  expect(() => decodeCbor(hex('4100'), { sizeBytesMax: 1, depthMax: 0 })).toThrow('cbor: 2 bytes, at most 1')
})
