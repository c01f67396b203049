// Verifies receipts and hybrid signatures on any platform, in JavaScript if WebCrypto lacks an algorithm. Pure.

import { ed25519 } from '@noble/curves/ed25519.js'
import { ml_dsa65 } from '@noble/post-quantum/ml-dsa.js'
import { concat, equalConstantTime, toHex } from '../../base/bytes.ts'
import { sha512 } from '../hash.ts'
import type { Check } from '../verdict.ts'
import { type HybridVerifiers, judgeHybrid, verifyEd25519, verifyMldsa65 } from './hybrid-verify.ts'
import type { HybridSignature, PublicKeys } from './public-keys.ts'
import type { StatementKind } from './statement.ts'
import { judgeReceipt, type ReceiptQuestion, type ReceiptVerdict } from './verify.ts'

/** Verifies in JavaScript only: the same on every platform, and the slowest (about 7 ms for both). */
export const portableVerifiers: HybridVerifiers = {
  ed25519: verifyByPoints,
  mldsa65: (signature, message, publicKey, context) => ml_dsa65.verify(signature, message, publicKey, { context }),
}

/** Verifies Ed25519 with WebCrypto if the platform supports it, and ML-DSA-65 in JavaScript. */
export const defaultVerifiers: HybridVerifiers = {
  mldsa65: portableVerifiers.mldsa65,
  ed25519: async (...signed) => (await verifyEd25519(...signed)) ?? portableVerifiers.ed25519(...signed),
}

/** Verifies both with WebCrypto if the platform supports them, otherwise in JavaScript. */
export const nativeVerifiers: HybridVerifiers = {
  ed25519: defaultVerifiers.ed25519,
  mldsa65: async (...signed) => (await verifyMldsa65(...signed)) ?? portableVerifiers.mldsa65(...signed),
}

/** Verifies a receipt given as text or as parsed JSON. Default verifiers: `defaultVerifiers`. Never throws. */
export async function verifyReceipt<Kind extends StatementKind>(
  json: unknown,
  question: ReceiptQuestion<Kind>,
): Promise<ReceiptVerdict<Kind>> {
  return await judgeReceipt(json, { ...question, verifiers: question.verifiers ?? defaultVerifiers })
}

/**
 * Returns two checks, `signature-ed25519` and `signature-mldsa65`. Default verifiers: `defaultVerifiers`. Never throws.
 */
export async function verifyHybrid(
  keys: PublicKeys,
  message: Uint8Array,
  signature: HybridSignature,
  { context, verifiers = defaultVerifiers }: { readonly context: Uint8Array; readonly verifiers?: HybridVerifiers },
): Promise<readonly [Check, Check]> {
  return await judgeHybrid(keys, message, signature, { context, verifiers })
}

/**
 * Verifies without the cofactor (RFC 8032 section 5.1.7), for every encoding of a key that native implementations
 * accept. The package's own `verify` multiplies by the cofactor, so a signer could make signatures that pass in one
 * runtime and fail in another. Throws if the bytes are not a point.
 */
function verifyByPoints(signature: Uint8Array, message: Uint8Array, publicKey: Uint8Array): boolean {
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
