// Hexadecimal that people paste into options and evidence: tools print it with and without 0x in front. Pure. Documents
// with a schema, such as policies, take it without.

import { fromHex } from '../base/bytes.ts'

/** Returns the bytes of hexadecimal in either case, with or without 0x in front; null for any other text. */
export function pastedHex(text: string): Uint8Array | null {
  return fromHex(/^0x./i.test(text) ? text.slice(2) : text)
}
