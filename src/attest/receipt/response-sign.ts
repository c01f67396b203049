// Signs response receipts. Pure: the caller supplies keys.

import type { HybridSignature } from './public-keys.ts'
import { encodeResponseReceipt, signedBytesOf } from './response.ts'

/** Signs the same bytes with both keys; ML-DSA uses an empty context. */
export type SignBoth = (message: Uint8Array) => Promise<HybridSignature>
export type SignBothNow = (message: Uint8Array) => HybridSignature

/** Returns the receipt's text, over the bytes of a claim (`encodeClaim`). */
export async function signClaim(claim: Uint8Array, sign: SignBoth): Promise<string> {
  return encodeResponseReceipt(claim, await sign(signedBytesOf(claim)))
}

/** Does the same as `signClaim` on the caller's thread. */
export function signClaimNow(claim: Uint8Array, signNow: SignBothNow): string {
  return encodeResponseReceipt(claim, signNow(signedBytesOf(claim)))
}
