// Opens the sealed headers of a response (sealed-headers.ts). Pure.

import { fromBase64Url } from '../../base/bytes.ts'
import { parsedJson } from '../encoding/json.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import { sealedHeaderNames, sealedHeadersLengthMax } from './protocol.ts'
import type { ResponseCiphers } from './response-keys.ts'
import type { SealedHeaders } from './sealed-headers.ts'

/** Opens sealed headers. Rejects with Malformed for any value that `sealHeaders` cannot make with these ciphers. */
export async function openHeaders(value: string, ciphers: ResponseCiphers): Promise<SealedHeaders> {
  wellFormed(value.length <= sealedHeadersLengthMax, 'sealed headers: too long')
  const ciphertext = fromBase64Url(value)
  wellFormed(ciphertext !== null, 'sealed headers: not base64url')
  let bytes: Uint8Array
  try {
    bytes = await ciphers.headers().open(ciphertext)
  } catch (cause) {
    throw new Malformed('sealed headers: they do not open', { cause })
  }
  const plain = parsedJson('sealed headers', bytes)
  wellFormed(typeof plain === 'object' && plain !== null && !Array.isArray(plain), 'sealed headers: not an object')
  for (const [name, text] of Object.entries(plain)) {
    const isKnown = sealedHeaderNames.some(kind => kind === name)
    wellFormed(isKnown && typeof text === 'string' && /^[\x20-\x7e]*$/.test(text), `sealed headers: ${name}`)
  }
  return plain
}
