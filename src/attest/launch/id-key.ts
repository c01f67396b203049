// Keys of an ID block's signers (AMD 56860 rev 1.58, chapter 10). Reports contain their digests. Pure.

import { type Layout, writeRecord } from '../encoding/layout.ts'
import { wellFormed } from '../malformed.ts'

/** A P-384 key: curve number, X and Y little-endian, each in 72 bytes. */
export const ID_KEY = {
  curve: [0x00, 4],
  x: [0x04, 72],
  y: [0x4c, 72],
  reserved: [0x94, 880],
} as const satisfies Layout
export const curveP384 = 2
/** Bytes of a coordinate; the rest of its 72-byte field is zero. */
export const coordinateBytes = 48

/** Coordinates or halves of a signature, big-endian, 48 bytes each. */
export type IdKey = { readonly x: Uint8Array; readonly y: Uint8Array }

/** Encodes the key structure of 0x404 bytes, which an author signs and whose SHA-384 reports contain. */
export function writeIdKey({ x, y }: IdKey): Uint8Array {
  const point = { x: toLittle(x), y: toLittle(y) }
  return writeRecord('ID key', ID_KEY, { curve: curveP384, ...point, reserved: new Uint8Array(ID_KEY.reserved[1]) })
}

export function toLittle(number: Uint8Array): Uint8Array {
  wellFormed(number.length === coordinateBytes, `ID number: ${number.length} bytes, not ${coordinateBytes}`)
  const field = new Uint8Array(ID_KEY.x[1])
  field.set(number.slice().reverse())
  return field
}
