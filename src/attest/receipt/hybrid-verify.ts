// Hybrid signatures: good only when both the Ed25519 and the ML-DSA-65 signature are. Pure.
//
// ML-DSA-65 is checked in JavaScript unless the caller passes a native verifier; Ed25519 by WebCrypto where it has it,
// else in JavaScript.

import { ed25519 } from '@noble/curves/ed25519.js'
import { ml_dsa65 } from '@noble/post-quantum/ml-dsa.js'
import { concat, equalConstantTime, toHex } from '../../base/bytes.ts'
import { sha512, webBytes } from '../hash.ts'
import { type Check, check } from '../verdict.ts'
import { type HybridSignature, PUBLIC_KEY_BYTES, type PublicKeys, SIGNATURE_BYTES } from './public-keys.ts'

/** Called with exact lengths only. A throw counts as false. */
export type VerifySignature = (
  signature: Uint8Array,
  message: Uint8Array,
  publicKey: Uint8Array,
  context: Uint8Array,
) => boolean | Promise<boolean>

export type HybridVerifiers = { readonly ed25519: VerifySignature; readonly mldsa65: VerifySignature }

/** JavaScript alone: the same on every platform, and the slowest (about 7 ms for both). */
export const portableVerifiers: HybridVerifiers = {
  ed25519: verifyEd25519,
  mldsa65: (signature, message, publicKey, context) => ml_dsa65.verify(signature, message, publicKey, { context }),
}

/** Ed25519 by WebCrypto where the platform has it; ML-DSA-65 in JavaScript. */
export const defaultVerifiers: HybridVerifiers = {
  mldsa65: portableVerifiers.mldsa65,
  ed25519: async (signature, message, publicKey, context) =>
    (await verifyByWebCrypto('raw', { name: 'Ed25519' }, publicKey, signature, message)) ??
    portableVerifiers.ed25519(signature, message, publicKey, context),
}

/** Both by WebCrypto where the platform has them, each with a fallback to JavaScript. */
export const nativeVerifiers: HybridVerifiers = {
  ed25519: defaultVerifiers.ed25519,
  mldsa65: async (signature, message, publicKey, context) =>
    (await verifyByWebCrypto('raw-public', { name: 'ML-DSA-65', context }, publicKey, signature, message)) ??
    portableVerifiers.mldsa65(signature, message, publicKey, context),
}

/** Two checks, `signature-ed25519` and `signature-mldsa65`. Never throws. */
export async function verifyHybrid(
  keys: PublicKeys,
  message: Uint8Array,
  signature: HybridSignature,
  options: { readonly context: Uint8Array; readonly verifiers?: HybridVerifiers },
): Promise<readonly [Check, Check]> {
  const verifiers = options.verifiers ?? defaultVerifiers
  const holds = async (key: keyof HybridSignature): Promise<boolean> => {
    if (keys[key].length !== PUBLIC_KEY_BYTES[key] || signature[key].length !== SIGNATURE_BYTES[key]) return false
    if (key === 'ed25519' && !isCanonicalScalar(signature.ed25519.subarray(32))) return false
    try {
      return await verifiers[key](signature[key], message, keys[key], options.context)
    } catch {
      return false
    }
  }
  // Native work first, so that it runs while the JavaScript half is busy.
  const [ed25519, mldsa65] = await Promise.all([holds('ed25519'), holds('mldsa65')])
  return [
    check('signature-ed25519', ed25519, 'the Ed25519 signature over the statement does not verify'),
    check('signature-mldsa65', mldsa65, 'the ML-DSA-65 signature over the statement does not verify'),
  ]
}

/** RFC 8032 section 5.1: the group's order L, little-endian. */
const groupOrder = Uint8Array.from([
  0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0, 0,
  0, 0, 0, 0, 0, 0, 0, 0, 0x10,
])

/** RFC 8032 section 5.1.7: S < L. Without this check anyone could derive a second valid signature. */
function isCanonicalScalar(scalar: Uint8Array): boolean {
  for (let i = groupOrder.length - 1; i >= 0; i -= 1) {
    const difference = (scalar[i] ?? 0) - (groupOrder[i] ?? 0)
    if (difference !== 0) return difference < 0
  }
  return false
}

/**
 * RFC 8032 section 5.1.7 without the cofactor, and over every encoding of a key that native implementations take: the
 * package's own `verify` multiplies by the cofactor, so that a signer could make signatures that pass in one runtime
 * and fail in another. Throws on bytes that are no point.
 */
function verifyEd25519(signature: Uint8Array, message: Uint8Array, publicKey: Uint8Array): boolean {
  const { Point } = ed25519
  const r = signature.subarray(0, 32)
  const hash = littleEndian(sha512(concat(r, publicKey, message))) % Point.Fn.ORDER
  const key = Point.fromBytes(publicKey, true)
  const expected = Point.BASE.multiplyUnsafe(littleEndian(signature.subarray(32))).subtract(key.multiplyUnsafe(hash))
  return equalConstantTime(expected.toBytes(), r)
}

function littleEndian(bytes: Uint8Array): bigint {
  return BigInt(`0x${toHex(Uint8Array.from(bytes).reverse())}`)
}

/** Null when this platform's WebCrypto does not have the algorithm. */
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
