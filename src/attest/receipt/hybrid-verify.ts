// Hybrid signatures: valid only if both the Ed25519 and the ML-DSA-65 signature are valid. Pure, with WebCrypto.
//
// verifiers.ts has verifiers in JavaScript, for platforms whose WebCrypto lacks one of the two. Measured programs
// include their runtime and do not need them.

import { webBytes } from '../hash.ts'
import { type Check, check } from '../verdict.ts'
import { type HybridSignature, PUBLIC_KEY_BYTES, type PublicKeys, SIGNATURE_BYTES } from './public-keys.ts'

/** Verifies a signature. Called with exact lengths only. Throwing counts as false. */
export type VerifySignature = (
  signature: Uint8Array,
  message: Uint8Array,
  publicKey: Uint8Array,
  context: Uint8Array,
) => boolean | Promise<boolean>

export type HybridVerifiers = { readonly ed25519: VerifySignature; readonly mldsa65: VerifySignature }

/** Verifies both with WebCrypto. Rejects every signature whose algorithm the platform lacks. */
export const webVerifiers: HybridVerifiers = {
  ed25519: async (...signed) => (await verifyEd25519(...signed)) === true,
  mldsa65: async (...signed) => (await verifyMldsa65(...signed)) === true,
}

/** Returns two checks, `signature-ed25519` and `signature-mldsa65`. Never throws. */
export async function judgeHybrid(
  keys: PublicKeys,
  message: Uint8Array,
  signature: HybridSignature,
  { context, verifiers }: { readonly context: Uint8Array; readonly verifiers: HybridVerifiers },
): Promise<readonly [Check, Check]> {
  const holds = async (key: keyof HybridSignature): Promise<boolean> => {
    if (keys[key].length !== PUBLIC_KEY_BYTES[key] || signature[key].length !== SIGNATURE_BYTES[key]) return false
    if (key === 'ed25519' && !isCanonicalScalar(signature.ed25519.subarray(32))) return false
    try {
      return await verifiers[key](signature[key], message, keys[key], context)
    } catch {
      return false
    }
  }
  // Start native work first, so that it overlaps with the JavaScript half.
  const [ed25519, mldsa65] = await Promise.all([holds('ed25519'), holds('mldsa65')])
  return [
    check('signature-ed25519', ed25519, 'the Ed25519 signature over the statement does not verify'),
    check('signature-mldsa65', mldsa65, 'the ML-DSA-65 signature over the statement does not verify'),
  ]
}

/** The group's order L, little-endian (RFC 8032 section 5.1). */
const groupOrder = Uint8Array.from([
  0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 0, 0, 0x10,
])

/** Reports whether S < L (RFC 8032 section 5.1.7). Without this check anyone could derive a second valid signature. */
function isCanonicalScalar(scalar: Uint8Array): boolean {
  for (let i = groupOrder.length - 1; i >= 0; i -= 1) {
    const difference = (scalar[i] ?? 0) - (groupOrder[i] ?? 0)
    if (difference !== 0) return difference < 0
  }
  return false
}

type WebVerify = (...signed: Parameters<VerifySignature>) => Promise<boolean | null>

/** Null if this platform's WebCrypto lacks the algorithm. */
export const verifyEd25519: WebVerify = (signature, message, publicKey) =>
  verifyByWebCrypto('raw', { name: 'Ed25519' }, publicKey, signature, message)

/** Null if this platform's WebCrypto lacks the algorithm. */
export const verifyMldsa65: WebVerify = (signature, message, publicKey, context) =>
  verifyByWebCrypto('raw-public', { name: 'ML-DSA-65', context }, publicKey, signature, message)

async function verifyByWebCrypto(
  format: 'raw' | 'raw-public',
  algorithm: { readonly name: string; readonly context?: Uint8Array },
  publicKey: Uint8Array,
  signature: Uint8Array,
  message: Uint8Array,
): Promise<boolean | null> {
  let key: CryptoKey
  try {
    key = await crypto.subtle.importKey(format as 'raw', webBytes(publicKey), algorithm.name, false, ['verify'])
  } catch {
    return null
  }
  return crypto.subtle.verify(algorithm, key, webBytes(signature), webBytes(message))
}
