// The document with which an upstream in a TD attests itself to a gateway: JSON for one nonce. Its quote binds the TLS
// key of the connection. Pure; throws Malformed.

import { concat, fromBase64, utf8 } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { sha512 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'
import { exactly, members, optional, type Reader, record, text } from '../provenance/fields.ts'
import { collateralBytesMax } from './collateral.ts'
import { quoteBytesMax } from './quote.ts'

const format = 'strongroom/tdx-upstream/v1'

/** Limit for the base64 of a quote and collateral as JSON. */
export const upstreamEvidenceBytesMax = collateralBytesMax + 2 * quoteBytesMax + 1024

export type UpstreamEvidence = {
  readonly quote: Uint8Array
  /** Collateral as JSON; null if the gateway uses its own. */
  readonly collateral: Uint8Array | null
}

/**
 * Returns the quote's REPORTDATA: SHA-512 of the format, a NUL, the 32-byte nonce, and SHA-256 of the TLS key's SPKI.
 */
export function upstreamReportData(nonce: Uint8Array, spkiDigest: Uint8Array): Uint8Array {
  return sha512(concat(utf8(`${format}\0`), nonce, spkiDigest))
}

const base64: Reader<Uint8Array> = (value, what) => {
  const bytes = fromBase64(text(value, what))
  wellFormed(bytes !== null, `${what}: not base64`)
  return bytes
}

const read = record({ format: exactly(format), quote: base64, collateral: optional(members) })

export function parseUpstreamEvidence(bytes: Uint8Array): UpstreamEvidence {
  const what = 'evidence'
  wellFormed(bytes.length <= upstreamEvidenceBytesMax, `${what}: ${bytes.length} bytes`)
  const { quote, collateral } = read(parsedJson(what, bytes), what)
  return { quote, collateral: collateral === undefined ? null : utf8(JSON.stringify(collateral)) }
}
