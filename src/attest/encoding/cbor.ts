// Deterministic CBOR: the subset that statements use. Unsigned integers, byte strings, text strings, arrays, maps with
// text keys, null. Pure. RFC 8949 section 4.2.1: shortest heads, definite lengths, map keys in the bytewise order of
// their encodings.

import { concat, equalConstantTime, fromUtf8, utf8 } from '../../base/bytes.ts'
import { Malformed, wellFormed } from '../malformed.ts'

export type CborValue = null | number | string | Uint8Array | readonly CborValue[] | CborMap
export type CborMap = ReadonlyMap<string, CborValue>

export type CborLimits = { readonly sizeBytesMax: number; readonly depthMax: number }

/**
 * Returns the deterministic encoding. Throws Malformed for ill-formed Unicode and numbers that are not safe unsigned
 * integers.
 */
export function encodeCbor(value: CborValue): Uint8Array {
  if (value === null) return Uint8Array.of(nullByte)
  if (value instanceof Uint8Array) return concat(head(MAJOR.bytes, value.length), value)
  if (typeof value === 'number') {
    wellFormed(Number.isSafeInteger(value) && value >= 0 && !Object.is(value, -0), 'cbor: not an unsigned integer')
    return head(MAJOR.unsigned, value)
  }
  if (typeof value === 'string') {
    const bytes = utf8(value)
    wellFormed(fromUtf8(bytes) === value, 'cbor: text is not well-formed Unicode')
    return concat(head(MAJOR.text, bytes.length), bytes)
  }
  if (isMap(value)) {
    const entries = [...value].map(([key, inner]) => [encodeCbor(key), encodeCbor(inner)] as const)
    entries.sort(([a], [b]) => compareBytes(a, b))
    return concat(head(MAJOR.map, value.size), ...entries.flat())
  }
  return concat(head(MAJOR.array, value.length), ...value.map(encodeCbor))
}

/** Decodes what `encodeCbor` writes. Throws Malformed for any bytes that would not re-encode to the same bytes. */
export function decodeCbor(bytes: Uint8Array, limits: CborLimits): CborValue {
  wellFormed(bytes.length <= limits.sizeBytesMax, `cbor: ${bytes.length} bytes, at most ${limits.sizeBytesMax}`)
  const { value, next } = readItem(bytes, 0, limits.depthMax)
  wellFormed(next === bytes.length, 'cbor: trailing bytes')
  wellFormed(equalConstantTime(encodeCbor(value), bytes), 'cbor: does not re-encode to itself')
  return value
}

/** RFC 8949 section 3: major types, in the three high bits of an item's first byte. */
const MAJOR = { unsigned: 0, bytes: 2, text: 3, array: 4, map: 5 } as const
const nullByte = 0xf6

/** Returns an item's first byte and its argument in the shortest form. */
function head(major: number, argument: number): Uint8Array {
  if (argument < 24) return Uint8Array.of((major << 5) | argument)
  const power = argument < 0x100 ? 0 : argument < 0x10000 ? 1 : argument < 2 ** 32 ? 2 : 3
  const bytes = new Uint8Array(1 + 2 ** power)
  bytes[0] = (major << 5) | (24 + power)
  let rest = argument
  for (let at = bytes.length - 1; at > 0; at -= 1) {
    bytes[at] = rest % 256
    rest = Math.floor(rest / 256)
  }
  return bytes
}

/** A value and where the next item begins. */
type Item = { readonly value: CborValue; readonly next: number }

/** Reads one item. `depthLeft`: how many arrays and maps may still be nested. Byte strings are copies. */
function readItem(bytes: Uint8Array, at: number, depthLeft: number): Item {
  const first = bytes[at]
  wellFormed(first !== undefined, 'cbor: truncated')
  if (first === nullByte) return { value: null, next: at + 1 }
  const { major, argument, next } = readHead(bytes, at, first)
  switch (major) {
    case MAJOR.unsigned:
      return { value: argument, next }
    case MAJOR.bytes:
      wellFormed(argument <= bytes.length - next, 'cbor: truncated byte string')
      return { value: Uint8Array.from(bytes.subarray(next, next + argument)), next: next + argument }
    case MAJOR.text:
      wellFormed(argument <= bytes.length - next, 'cbor: truncated text string')
      return { value: decodeText(bytes.subarray(next, next + argument)), next: next + argument }
    case MAJOR.array:
      return readArray(bytes, next, argument, depthLeft)
    case MAJOR.map:
      return readMap(bytes, next, argument, depthLeft)
    default:
      throw new Malformed('cbor: a kind of item that statements do not use')
  }
}

/** Reads an item's first byte and its argument. Throws Malformed unless the argument has its shortest form. */
function readHead(bytes: Uint8Array, at: number, first: number): { major: number; argument: number; next: number } {
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

function readArray(bytes: Uint8Array, start: number, count: number, depthLeft: number): Item {
  wellFormed(depthLeft > 0, 'cbor: nested too deeply')
  // Every item takes at least one byte, so a count above the remaining bytes is wrong.
  wellFormed(count <= bytes.length - start, 'cbor: truncated array')
  const items: CborValue[] = []
  let at = start
  for (let i = 0; i < count; i += 1) {
    const { value, next } = readItem(bytes, at, depthLeft - 1)
    items.push(value)
    at = next
  }
  return { value: items, next: at }
}

function readMap(bytes: Uint8Array, start: number, count: number, depthLeft: number): Item {
  wellFormed(depthLeft > 0, 'cbor: nested too deeply')
  wellFormed(count <= (bytes.length - start) / 2, 'cbor: truncated map')
  const map = new Map<string, CborValue>()
  let at = start
  let previous: Uint8Array | null = null
  for (let i = 0; i < count; i += 1) {
    const key = readItem(bytes, at, 0)
    wellFormed(typeof key.value === 'string', 'cbor: a key that is not text')
    const encodedKey = bytes.subarray(at, key.next)
    wellFormed(previous === null || compareBytes(previous, encodedKey) < 0, 'cbor: keys repeated or out of order')
    previous = encodedKey
    const { value, next } = readItem(bytes, key.next, depthLeft - 1)
    map.set(key.value, value)
    at = next
  }
  return { value: map, next: at }
}

function decodeText(bytes: Uint8Array): string {
  try {
    return fromUtf8(bytes)
  } catch (cause) {
    throw new Malformed('cbor: text is not UTF-8', { cause })
  }
}

function isMap(value: readonly CborValue[] | CborMap): value is CborMap {
  return value instanceof Map
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < Math.min(a.length, b.length); i += 1) {
    const difference = (a[i] ?? 0) - (b[i] ?? 0)
    if (difference !== 0) return difference
  }
  return a.length - b.length
}
