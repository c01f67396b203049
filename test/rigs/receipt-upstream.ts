// Who answered, by a receipt's own word: for tests that judge receipts of any upstream.

import { decodeResponseReceipt } from '../../src/attest/receipt/response.ts'

export function upstreamIn(receipt: string): string {
  return decodeResponseReceipt(receipt).claim.upstream
}
