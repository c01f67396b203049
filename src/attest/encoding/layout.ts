// Records of little-endian fields, read and written by one table each. Pure.

import { wellFormed } from '../malformed.ts'

/** [offset, size]. Sizes 1, 2 and 4 are numbers, 8 is a bigint, anything else is bytes. */
export type Layout = { readonly [field: string]: readonly [offset: number, sizeBytes: number] }

type Value<Size> = Size extends 1 | 2 | 4 ? number : Size extends 8 ? bigint : Uint8Array

export type Values<L extends Layout> = { readonly [Field in keyof L]: Value<L[Field][1]> }

/** The length that a layout covers. */
export function layoutBytes(layout: Layout): number {
  return Object.values(layout).reduce((end, [offset, sizeBytes]) => Math.max(end, offset + sizeBytes), 0)
}

/** Throws Malformed when `bytes` is not as long as the layout. `what` names the record. Byte fields are copies. */
export function readRecord<const L extends Layout>(what: string, bytes: Uint8Array, layout: L): Values<L> {
  wellFormed(bytes.length === layoutBytes(layout), `${what}: ${bytes.length} bytes, not ${layoutBytes(layout)}`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const values = Object.entries(layout).map(([field, [offset, sizeBytes]]) => {
    if (sizeBytes === 8) return [field, view.getBigUint64(offset, true)]
    if (sizeBytes === 4) return [field, view.getUint32(offset, true)]
    if (sizeBytes === 2) return [field, view.getUint16(offset, true)]
    if (sizeBytes === 1) return [field, view.getUint8(offset)]
    return [field, bytes.slice(offset, offset + sizeBytes)]
  })
  return Object.fromEntries(values)
}

/** Throws Malformed when a value does not fit its field. */
export function writeRecord<const L extends Layout>(what: string, layout: L, values: Values<L>): Uint8Array {
  const bytes = new Uint8Array(layoutBytes(layout))
  const view = new DataView(bytes.buffer)
  for (const [field, [offset, sizeBytes]] of Object.entries(layout)) {
    const value: number | bigint | Uint8Array = values[field as keyof L]
    const fits = `${what}: ${field} does not fit`
    if (typeof value === 'bigint') {
      wellFormed(value >= 0n && value >> 64n === 0n, fits)
      view.setBigUint64(offset, value, true)
    } else if (typeof value === 'number') {
      wellFormed(Number.isInteger(value) && value >= 0 && value < 2 ** (sizeBytes * 8), fits)
      if (sizeBytes === 4) view.setUint32(offset, value, true)
      else if (sizeBytes === 2) view.setUint16(offset, value, true)
      else view.setUint8(offset, value)
    } else {
      wellFormed(value.length === sizeBytes, fits)
      bytes.set(value, offset)
    }
  }
  return bytes
}
