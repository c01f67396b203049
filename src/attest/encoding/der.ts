// DER: the subset of X.690 in certificates and CRLs of AMD. Pure; throws Malformed.
//
// Strict: definite and shortest lengths, one-byte tags, nothing after the end. Returns views of the input, copies
// nothing, and never recurses.

import { toHex } from '../../base/bytes.ts'
import { Malformed, wellFormed } from '../malformed.ts'

/** One element. `whole` includes its tag and length. */
export type Der = { readonly tag: number; readonly contents: Uint8Array; readonly whole: Uint8Array }

/** Identifier octets (X.690 section 8). Context tags 0–3 are constructed. */
export const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  null: 0x05,
  oid: 0x06,
  utf8String: 0x0c,
  ia5String: 0x16,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
  context0: 0xa0,
  context1: 0xa1,
  context2: 0xa2,
  context3: 0xa3,
} as const satisfies Record<string, number>

/** Reads bytes that hold exactly one element with this tag. */
export function readOne(bytes: Uint8Array, tag: number, what: string): Der {
  const { element, next } = readElement(bytes, 0, what)
  wellFormed(next === bytes.length, `${what}: ${bytes.length - next} bytes after its end`)
  wellFormed(element.tag === tag, `${what}: tag ${hexByte(element.tag)}, not ${hexByte(tag)}`)
  return element
}

/** Reads the elements inside a constructed element, in order. */
export function readAll(contents: Uint8Array, what: string): Der[] {
  const elements: Der[] = []
  let at = 0
  while (at < contents.length) {
    const { element, next } = readElement(contents, at, what)
    elements.push(element)
    at = next
  }
  return elements
}

/** Reads the elements of a SEQUENCE. */
export function readSequence(bytes: Uint8Array, what: string): Der[] {
  return readAll(readOne(bytes, TAG.sequence, what).contents, what)
}

/** Takes the elements of a structure in order: required ones, optional ones by tag, then the end. */
export class DerFields {
  readonly #elements: readonly Der[]
  readonly #what: string
  #at = 0

  constructor(elements: readonly Der[], what: string) {
    this.#elements = elements
    this.#what = what
  }

  take(tag: number, field: string): Der {
    const element = this.optional(tag)
    wellFormed(element !== null, `${this.#what}: no ${field}`)
    return element
  }

  optional(tag: number): Der | null {
    const element = this.#elements[this.#at]
    if (element?.tag !== tag) return null
    this.#at += 1
    return element
  }

  end(): void {
    wellFormed(this.#at === this.#elements.length, `${this.#what}: an element that does not belong there`)
  }
}

/** Reads a non-negative INTEGER in its shortest form, as hexadecimal without a sign byte: '00', 'd9', '010001'. */
export function integerHex(contents: Uint8Array, what: string): string {
  return toHex(integerBytes(contents, what))
}

/** Reads a non-negative INTEGER in its shortest form, as bytes without a sign byte. */
export function integerBytes(contents: Uint8Array, what: string): Uint8Array {
  const first = contents[0]
  const second = contents[1]
  wellFormed(
    first !== undefined && contents.length <= integerBytesMax,
    `${what}: an integer of ${contents.length} bytes`,
  )
  wellFormed(first < 0x80, `${what}: a negative integer`)
  if (second === undefined) return contents
  wellFormed(first !== 0 || second >= 0x80, `${what}: an integer that is not in its shortest form`)
  return first === 0 ? contents.subarray(1) : contents
}

const integerBytesMax = 1025

/** Reads an INTEGER that fits one unsigned byte: 0x80 and above are `02 02 00 xx`. */
export function byteInteger(contents: Uint8Array, what: string): number {
  const hex = integerHex(contents, what)
  wellFormed(hex.length === 2, `${what}: more than 255`)
  return Number.parseInt(hex, 16)
}

/** Reads an OBJECT IDENTIFIER in dotted form. */
export function dottedOid(contents: Uint8Array, what: string): string {
  const arcs: number[] = []
  let arc = 0
  let inside = false
  wellFormed(contents.length > 0 && contents.length <= oidBytesMax, `${what}: an OID of ${contents.length} bytes`)
  for (const byte of contents) {
    wellFormed(inside || byte !== 0x80, `${what}: an OID arc that is not in its shortest form`)
    arc = arc * 128 + (byte & 0x7f)
    wellFormed(arc <= 0xffffffff, `${what}: an OID arc above 32 bits`)
    inside = byte >= 0x80
    if (inside) continue
    if (arcs.length === 0) {
      const root = Math.min(Math.floor(arc / 40), 2)
      arcs.push(root, arc - root * 40)
    } else arcs.push(arc)
    arc = 0
  }
  wellFormed(!inside, `${what}: an OID that ends inside an arc`)
  return arcs.join('.')
}

const oidBytesMax = 64

/** Reads a BOOLEAN, for which DER allows only 00 and FF. */
export function booleanOf(contents: Uint8Array, what: string): boolean {
  const value = contents[0]
  wellFormed(contents.length === 1 && (value === 0 || value === 0xff), `${what}: not a DER boolean`)
  return value === 0xff
}

/** Reads a BIT STRING of whole bytes. */
export function wholeBits(contents: Uint8Array, what: string): Uint8Array {
  wellFormed(contents[0] === 0, `${what}: a bit string that is not whole bytes`)
  return contents.subarray(1)
}

/** Reads a UTCTime or GeneralizedTime in the form of RFC 5280 section 4.1.2.5, in milliseconds since the epoch. */
export function timeMs({ tag, contents }: Der, what: string): number {
  wellFormed(tag === TAG.utcTime || tag === TAG.generalizedTime, `${what}: tag ${hexByte(tag)} is no time`)
  wellFormed(contents.length <= timeBytesMax, `${what}: a time of ${contents.length} bytes`)
  const text = String.fromCharCode(...contents)
  const form =
    tag === TAG.utcTime
      ? /^(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})Z$/
      : /^(\d{4})(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})Z$/
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = (form.exec(text) ?? []).slice(1).map(Number)
  const fullYear = tag === TAG.utcTime ? year + (year >= 50 ? 1900 : 2000) : year
  const ms = Date.UTC(fullYear, month - 1, day, hour, minute, second)
  const iso = Number.isFinite(ms) ? new Date(ms).toISOString().replace(/[-:T]|\.000Z/g, '') : ''
  wellFormed(form.test(text) && iso.endsWith(text.slice(0, -1)), `${what}: not a time`)
  return ms
}

const timeBytesMax = 15

/** Reads a string type whose bytes are all printable ASCII. */
export function asciiOf(contents: Uint8Array, what: string): string {
  wellFormed(contents.length <= textBytesMax, `${what}: a text of ${contents.length} bytes`)
  wellFormed(
    contents.every(byte => byte >= 0x20 && byte <= 0x7e),
    `${what}: not printable ASCII`,
  )
  return String.fromCharCode(...contents)
}

const textBytesMax = 256

function readElement(bytes: Uint8Array, at: number, what: string): { element: Der; next: number } {
  const tag = bytes[at]
  const first = bytes[at + 1]
  if (tag === undefined || first === undefined) throw new Malformed(`${what}: ends inside an element`)
  wellFormed((tag & 0x1f) !== 0x1f, `${what}: a tag of several bytes`)
  let length = first
  let start = at + 2
  if (first >= 0x80) {
    const count = first & 0x7f
    wellFormed(count >= 1 && count <= 3, `${what}: a length of ${count} bytes`)
    length = 0
    for (const byte of bytes.subarray(start, start + count)) length = length * 256 + byte
    start += count
    const isShortest = length >= 0x80 && length >= 256 ** (count - 1)
    wellFormed(isShortest, `${what}: a length that is not in its shortest form`)
  }
  const next = start + length
  wellFormed(next <= bytes.length, `${what}: ends inside an element`)
  return { element: { tag, contents: bytes.subarray(start, next), whole: bytes.subarray(at, next) }, next }
}

function hexByte(byte: number): string {
  return byte.toString(16).padStart(2, '0')
}
