// Hybrid keys: made and used inside the VM. Pure: the caller supplies randomness.
//
// Ed25519 and ML-DSA sign the same bytes. ML-DSA also takes a context string (FIPS 204 section 5.2). Ed25519 takes
// none, so the first bytes of a message must identify its kind. Only statements, among the messages signed with these
// keys, begin with a CBOR map.

import { ed25519, x25519 } from '@noble/curves/ed25519.js'
import { shake256 } from '@noble/hashes/sha3.js'
import { ml_dsa65 } from '@noble/post-quantum/ml-dsa.js'
import { ml_kem768 } from '@noble/post-quantum/ml-kem.js'
import type { HybridSignature, PublicKeys } from './public-keys.ts'
import type { SignStatement } from './receipt-keys.ts'
import { type Random, SEED_BYTES, take, XWING } from './seeds.ts'
import { statementContext } from './statement.ts'

export type SecretKeys = {
  /** The seed (RFC 8032 section 5.1.5). */
  readonly ed25519: Uint8Array
  readonly mldsa65: Uint8Array
  readonly x25519: Uint8Array
  readonly mlkem768: Uint8Array
}
export type HybridKeys = { readonly publicKeys: PublicKeys; readonly secretKeys: SecretKeys }

/** Bytes of rnd in the hedged variant (FIPS 204 algorithm 2). */
const hedgeBytes = 32

/**
 * Makes the keys. The agreement pair is one X-Wing key, whose public form is `mlkem768`, then `x25519`
 * (draft-connolly-cfrg-xwing-kem, section 5.2).
 */
export function makeHybridKeys(random: Random): HybridKeys {
  const signing = take(random, SEED_BYTES.ed25519)
  const mldsa65 = ml_dsa65.keygen(take(random, SEED_BYTES.mldsa65))
  const xwing = shake256(take(random, SEED_BYTES.xwing), { dkLen: XWING.expandedBytes })
  const mlkem768 = ml_kem768.keygen(xwing.subarray(0, XWING.mlkem768SeedBytes))
  const agreement = xwing.slice(XWING.mlkem768SeedBytes)
  return {
    publicKeys: {
      ed25519: ed25519.getPublicKey(signing),
      mldsa65: mldsa65.publicKey,
      x25519: x25519.getPublicKey(agreement),
      mlkem768: mlkem768.publicKey,
    },
    secretKeys: { ed25519: signing, mldsa65: mldsa65.secretKey, x25519: agreement, mlkem768: mlkem768.secretKey },
  }
}

/** Signs the bytes with both keys. ML-DSA is hedged with the caller's randomness. */
export function signHybrid(
  keys: SecretKeys,
  message: Uint8Array,
  options: { readonly context: Uint8Array; readonly random: Random },
): HybridSignature {
  return {
    ed25519: ed25519.sign(message, keys.ed25519),
    mldsa65: ml_dsa65.sign(message, keys.mldsa65, {
      context: options.context,
      extraEntropy: take(options.random, hedgeBytes),
    }),
  }
}

/** Returns a signer of statements in JavaScript, for any platform. */
export function portableSigner(keys: SecretKeys, random: Random): SignStatement {
  return statement => signHybrid(keys, statement, { context: statementContext, random })
}
