// A receipt as a response bears it, taken apart without being judged: for tests that judge receipts of any upstream.

import {
  type DecodedResponseReceipt,
  decodeResponseReceipt,
  readCarriedReceipt,
} from '../../src/attest/receipt/response-read.ts'

export function decodeCarried(text: string): DecodedResponseReceipt {
  return decodeResponseReceipt(readCarriedReceipt(text).receipt)
}

/** Name of the upstream, as the receipt says. */
export function upstreamIn(text: string): string {
  return decodeCarried(text).claim.upstream
}
