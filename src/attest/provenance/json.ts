// JSON of a build's documents: indented by two spaces, without a final line break, like serde_json's pretty form. Pure.

import { toHex, utf8 } from '../../base/bytes.ts'
import { sha256 } from '../hash.ts'

export function prettyJson(value: unknown): Uint8Array {
  return utf8(JSON.stringify(value, null, 2))
}

/** Returns the SHA-256 in lowercase hexadecimal. */
export function fileSha256(bytes: Uint8Array): string {
  return toHex(sha256(bytes))
}
