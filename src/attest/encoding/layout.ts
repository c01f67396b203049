// Records with fields at fixed offsets: one table describes a record, one reader and one writer serve every table.
// Little-endian. Pure. Structures whose length depends on their contents are read with reader.ts.

import { Malformed, wellFormed } from '../malformed.ts'

/** [offset, size]. Sizes 1, 2 and 4 are numbers, 8 is a bigint, all others are bytes. A table may leave gaps. */
export type Layout = { readonly [field: string]: readonly [offset: number, sizeBytes: number] }

type Value<Size> = Size extends 1 | 2 | 4 ? number : Size extends 8 ? bigint : Uint8Array

export type Values<L extends Layout> = { readonly [Field in keyof L]: Value<L[Field][1]> }

/** Returns the length in bytes that a layout covers. */
export function layoutBytes(layout: Layout): number {
  return listed(layout).sizeBytes
}

/**
 * Reads a record. Throws Malformed unless `bytes` is exactly as long as the layout. `what` names the record. Fields are
 * copies.
 */
export function readRecord<const L extends Layout>(what: string, bytes: Uint8Array, layout: L): Values<L> {
  const sizeBytes = layoutBytes(layout)
  wellFormed(bytes.length === sizeBytes, `${what}: ${bytes.length} bytes instead of ${sizeBytes}`)
  return readFields(what, bytes, layout)
}

/** Reads a record at the start of longer bytes. Throws Malformed if they are too short. Byte fields are copies. */
export function readFields<const L extends Layout>(what: string, bytes: Uint8Array, layout: L): Values<L> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const values: { [field: string]: number | bigint | Uint8Array } = {}
  for (const [field, offset, sizeBytes] of listed(layout).fields) {
    if (offset + sizeBytes > bytes.length) throw new Malformed(`${what}: truncated`)
    if (sizeBytes === 8) values[field] = view.getBigUint64(offset, true)
    else if (sizeBytes === 4) values[field] = view.getUint32(offset, true)
    else if (sizeBytes === 2) values[field] = view.getUint16(offset, true)
    else if (sizeBytes === 1) values[field] = view.getUint8(offset)
    // Not `slice`, because that of Node's Buffer does not copy.
    else values[field] = new Uint8Array(bytes.subarray(offset, offset + sizeBytes))
  }
  return values as Values<L>
}

/** Encodes a record. Throws Malformed if a value is missing or does not fit its field. */
export function writeRecord<const L extends Layout>(what: string, layout: L, values: Values<L>): Uint8Array {
  const bytes = new Uint8Array(layoutBytes(layout))
  for (const [field] of listed(layout).fields) wellFormed(values[field] !== undefined, `${what}: no ${field}`)
  writeFields(what, bytes, layout, values)
  return bytes
}

/** Writes the given fields into bytes that hold the record. Throws Malformed if a value does not fit its field. */
export function writeFields<const L extends Layout>(
  what: string,
  into: Uint8Array,
  layout: L,
  values: Partial<Values<L>>,
): void {
  const view = new DataView(into.buffer, into.byteOffset, into.byteLength)
  for (const [field, offset, sizeBytes] of listed(layout).fields) {
    const value: number | bigint | Uint8Array | undefined = values[field]
    if (value === undefined) continue
    if (!fits(value, sizeBytes) || offset + sizeBytes > into.length)
      throw new Malformed(`${what}: ${field} does not fit`)
    if (typeof value === 'bigint') view.setBigUint64(offset, value, true)
    else if (typeof value !== 'number') into.set(value, offset)
    else if (sizeBytes === 4) view.setUint32(offset, value, true)
    else if (sizeBytes === 2) view.setUint16(offset, value, true)
    else view.setUint8(offset, value)
  }
}

function fits(value: number | bigint | Uint8Array, sizeBytes: number): boolean {
  if (typeof value === 'bigint') return sizeBytes === 8 && value >= 0n && value >> 64n === 0n
  const isNumber = sizeBytes === 1 || sizeBytes === 2 || sizeBytes === 4
  if (typeof value === 'number')
    return isNumber && Number.isInteger(value) && value >= 0 && value < 2 ** (sizeBytes * 8)
  return !isNumber && sizeBytes !== 8 && value.length === sizeBytes
}

type LayoutTable = {
  readonly fields: readonly (readonly [field: string, offset: number, sizeBytes: number])[]
  readonly sizeBytes: number
}

/** Tables as arrays, which are faster to iterate. The cache changes no result. */
const lists = new WeakMap<Layout, LayoutTable>()

function listed(layout: Layout): LayoutTable {
  const known = lists.get(layout)
  if (known !== undefined) return known
  const fields = Object.entries(layout).map(([field, [offset, sizeBytes]]) => [field, offset, sizeBytes] as const)
  const made = { fields, sizeBytes: Math.max(0, ...fields.map(([, offset, size]) => offset + size)) }
  lists.set(layout, made)
  return made
}

/** Reports whether every byte is zero. */
export function isZero(bytes: Uint8Array): boolean {
  return bytes.every(byte => byte === 0)
}
