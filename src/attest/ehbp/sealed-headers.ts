// Headers of a sealed response that reveal what is in its body, sealed in the same way: one JSON object (protocol.ts).
// Pure.

import { toBase64Url, utf8 } from '../../base/bytes.ts'
import type { sealedHeaderNames } from './protocol.ts'
import type { ResponseCiphers } from './response-keys.ts'

export type SealedHeaders = Readonly<Partial<Record<(typeof sealedHeaderNames)[number], string>>>

/** Returns the value of X-Strongroom-Sealed-Headers. */
export async function sealHeaders(headers: SealedHeaders, ciphers: ResponseCiphers): Promise<string> {
  return toBase64Url(await ciphers.headers().seal(utf8(JSON.stringify(headers))))
}
