// Deterministic CBOR, the part that statements use: unsigned integers, byte strings, text strings, arrays, maps with
// text keys, null. Pure. RFC 8949 section 4.2.1: shortest heads, definite lengths, map keys in the bytewise order of
// their encodings. cbor-x writes and reads the values; the scan here first decides whether the bytes may be read at
// all.

import { Encoder } from 'cbor-x/encode'
import { equalConstantTime, fromUtf8, utf8 } from '../../base/bytes.ts'
import { Malformed, wellFormed } from '../malformed.ts'

export type CborValue = null | number | string | Uint8Array | readonly CborValue[] | CborMap
export type CborMap = ReadonlyMap<string, CborValue>

export type CborLimits = { readonly sizeBytesMax: number; readonly depthMax: number }

/** Deterministic bytes. Throws Malformed on numbers other than safe unsigned integers and on ill-formed Unicode. */
export function encodeCbor(value: CborValue): Uint8Array {
  return new Uint8Array(codec.encode(writable(value)))
}

/** Reads only what `encodeCbor` writes: anything that would not re-encode to the same bytes is Malformed. */
export function decodeCbor(bytes: Uint8Array, limits: CborLimits): CborValue {
  wellFormed(bytes.length <= limits.sizeBytesMax, `cbor: ${bytes.length} bytes, at most ${limits.sizeBytesMax}`)
  const end = scanItem(bytes, 0, limits.depthMax)
  wellFormed(end === bytes.length, 'cbor: trailing bytes')
  let decoded: unknown
  try {
    // A copy: cbor-x adds a property to the array that it reads.
    decoded = codec.decode(Uint8Array.from(bytes))
  } catch (cause) {
    throw new Malformed('cbor: unreadable', { cause })
  }
  const value = readable(decoded)
  wellFormed(equalConstantTime(encodeCbor(value), bytes), 'cbor: does not re-encode to itself')
  return value
}

const codec = new Encoder({ mapsAsObjects: false, useRecords: false, tagUint8Array: false, variableMapSize: true })

/** RFC 8949 section 3: major types, in the three high bits of an item's first byte. */
const MAJOR = { unsigned: 0, bytes: 2, text: 3, array: 4, map: 5 } as const
const nullByte = 0xf6

/** Where the item ends. `depthLeft` counts the arrays and maps that may still be opened. */
function scanItem(bytes: Uint8Array, at: number, depthLeft: number): number {
  const first = bytes[at]
  wellFormed(first !== undefined, 'cbor: truncated')
  if (first === nullByte) return at + 1
  const { major, argument, next } = scanHead(bytes, at, first)
  switch (major) {
    case MAJOR.unsigned:
      return next
    case MAJOR.bytes:
      wellFormed(argument <= bytes.length - next, 'cbor: truncated byte string')
      return next + argument
    case MAJOR.text:
      wellFormed(argument <= bytes.length - next, 'cbor: truncated text string')
      textOf(bytes.subarray(next, next + argument))
      return next + argument
    case MAJOR.array:
      return scanArray(bytes, next, argument, depthLeft)
    case MAJOR.map:
      return scanMap(bytes, next, argument, depthLeft)
    default:
      throw new Malformed('cbor: a kind of item that statements do not use')
  }
}

/** An item's first byte and its argument, which must be written as short as possible. */
function scanHead(bytes: Uint8Array, at: number, first: number): { major: number; argument: number; next: number } {
  const major = first >> 5
  const info = first & 0x1f
  if (info < 24) return { major, argument: info, next: at + 1 }
  wellFormed(info <= 27, 'cbor: indefinite length or reserved head')
  const sizeBytes = 1 << (info - 24)
  wellFormed(at + 1 + sizeBytes <= bytes.length, 'cbor: truncated head')
  let argument = 0
  for (const byte of bytes.subarray(at + 1, at + 1 + sizeBytes)) argument = argument * 256 + byte
  wellFormed(Number.isSafeInteger(argument), 'cbor: integer out of range')
  const shortest = argument < 24 ? 0 : argument < 0x100 ? 1 : argument < 0x10000 ? 2 : argument < 2 ** 32 ? 4 : 8
  wellFormed(sizeBytes === shortest, 'cbor: head is not the shortest')
  return { major, argument, next: at + 1 + sizeBytes }
}

function scanArray(bytes: Uint8Array, start: number, count: number, depthLeft: number): number {
  wellFormed(depthLeft > 0, 'cbor: nested too deeply')
  // Every item takes at least one byte, so a count larger than the rest cannot be true.
  wellFormed(count <= bytes.length - start, 'cbor: truncated array')
  let at = start
  for (let i = 0; i < count; i += 1) at = scanItem(bytes, at, depthLeft - 1)
  return at
}

function scanMap(bytes: Uint8Array, start: number, count: number, depthLeft: number): number {
  wellFormed(depthLeft > 0, 'cbor: nested too deeply')
  wellFormed(count <= (bytes.length - start) / 2, 'cbor: truncated map')
  let at = start
  let previous: Uint8Array | null = null
  for (let i = 0; i < count; i += 1) {
    const first = bytes[at]
    wellFormed(first !== undefined && first >> 5 === MAJOR.text, 'cbor: a key that is not text')
    const keyEnd = scanItem(bytes, at, 0)
    const key = bytes.subarray(at, keyEnd)
    wellFormed(previous === null || compareBytes(previous, key) < 0, 'cbor: keys repeated or out of order')
    previous = key
    at = scanItem(bytes, keyEnd, depthLeft - 1)
  }
  return at
}

function textOf(bytes: Uint8Array): string {
  try {
    return fromUtf8(bytes)
  } catch (cause) {
    throw new Malformed('cbor: text is not UTF-8', { cause })
  }
}

/** The value in the form that makes cbor-x deterministic: maps sorted, BigInt where it would choose a float. */
function writable(value: CborValue): unknown {
  if (value === null || value instanceof Uint8Array) return value
  if (typeof value === 'number') {
    wellFormed(Number.isSafeInteger(value) && value >= 0 && !Object.is(value, -0), 'cbor: not an unsigned integer')
    return value < 2 ** 32 ? value : BigInt(value)
  }
  if (typeof value === 'string') {
    checkUnicode(value)
    return value
  }
  if (isMap(value)) {
    const entries = [...value].map(([key, inner]) => ({ key, encodedKey: encodedKeyOf(key), inner: writable(inner) }))
    entries.sort((a, b) => compareKeys(a.encodedKey, b.encodedKey))
    return new Map(entries.map(({ key, inner }) => [key, inner]))
  }
  return value.map(writable)
}

function isMap(value: readonly CborValue[] | CborMap): value is CborMap {
  return value instanceof Map
}

/** The inverse, from what cbor-x returns. */
function readable(value: unknown): CborValue {
  if (value === null || typeof value === 'string' || typeof value === 'number') return value
  if (typeof value === 'bigint') return Number(value)
  // cbor-x returns a view of the input; values must not share memory with it.
  if (value instanceof Uint8Array) return Uint8Array.from(value)
  if (Array.isArray(value)) return value.map(readable)
  wellFormed(value instanceof Map, 'cbor: unreadable')
  return new Map([...value].map(([key, inner]) => [String(key), readable(inner)]))
}

function checkUnicode(text: string): void {
  wellFormed(fromUtf8(utf8(text)) === text, 'cbor: text is not well-formed Unicode')
}

function encodedKeyOf(key: string): Uint8Array {
  checkUnicode(key)
  return utf8(key)
}

/** A head grows with its length, so among text keys the shorter one comes first. */
function compareKeys(a: Uint8Array, b: Uint8Array): number {
  return a.length - b.length || compareBytes(a, b)
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < Math.min(a.length, b.length); i += 1) {
    const difference = (a[i] ?? 0) - (b[i] ?? 0)
    if (difference !== 0) return difference
  }
  return a.length - b.length
}
