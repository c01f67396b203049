// JSON of a build's documents: two spaces, no line break at the end, as serde_json's pretty form. Pure.

import { toHex, utf8 } from '../../base/bytes.ts'
import { sha256 } from '../hash.ts'

export function prettyJson(value: unknown): Uint8Array {
  return utf8(JSON.stringify(value, null, 2))
}

/** Lowercase hexadecimal. */
export function fileSha256(bytes: Uint8Array): string {
  return toHex(sha256(bytes))
}
