// Parsers of options about parts of a receipt. Pure. They throw commander's InvalidArgumentError.

import { InvalidArgumentError } from 'commander'
import { readSalt } from '../../attest/receipt/response-read.ts'
import { fromBase64Url } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import { nonceBytes } from '../../verifier/gateway.ts'

/** Parses a nonce in the form of GET /attestation. */
export function nonceOption(text: string): Uint8Array {
  const bytes = fromBase64Url(text)
  if (bytes?.length === nonceBytes) return bytes
  throw new InvalidArgumentError(`It must be ${nonceBytes} bytes in base64url, which is 43 characters.`)
}

/** Parses a salt in the form of X-Strongroom-Receipt-Salt. */
export function saltOption(text: string): Uint8Array {
  try {
    return readSalt(text)
  } catch (error) {
    throw new InvalidArgumentError(`${messageOf(error)}, which is 43 characters.`)
  }
}
