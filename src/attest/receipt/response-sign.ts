// Signs response receipts. Pure: keys come from the caller.

import type { HybridSignature } from './public-keys.ts'
import { encodeResponseReceipt, signedBytesOf } from './response.ts'

/** Both halves over the same bytes; ML-DSA with an empty context. */
export type SignBoth = (message: Uint8Array) => Promise<HybridSignature>
export type SignBothNow = (message: Uint8Array) => HybridSignature

/** The receipt's text, over the bytes of a claim (`encodeClaim`). */
export async function signClaim(claim: Uint8Array, sign: SignBoth): Promise<string> {
  return encodeResponseReceipt(claim, await sign(signedBytesOf(claim)))
}

/** The same on this thread. */
export function signClaimNow(claim: Uint8Array, signNow: SignBothNow): string {
  return encodeResponseReceipt(claim, signNow(signedBytesOf(claim)))
}
