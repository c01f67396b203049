// GUIDs in records of UEFI and AMD. Pure.

import { assert, present } from '../../base/assert.ts'
import { concat, fromHex, toHex } from '../../base/bytes.ts'

/**
 * Encodes a GUID from its usual form (UEFI 2.10, appendix A: the first three groups are little-endian). Returns 16
 * bytes.
 */
export function guidBytes(text: string): Uint8Array {
  assert(/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text), `a GUID: ${text}`)
  const bytes = present(fromHex(text.replaceAll('-', '')), 'a GUID is hexadecimal')
  return concat(
    bytes.slice(0, 4).reverse(),
    bytes.slice(4, 6).reverse(),
    bytes.slice(6, 8).reverse(),
    bytes.subarray(8),
  )
}

/** Formats a GUID of 16 bytes in its usual form, in lower case. */
export function guidText(bytes: Uint8Array): string {
  const at = (from: number, to: number) => bytes.slice(from, to)
  return [at(0, 4).reverse(), at(4, 6).reverse(), at(6, 8).reverse(), at(8, 10), at(10, 16)].map(toHex).join('-')
}
