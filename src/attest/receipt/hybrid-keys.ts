// Hybrid keys: made and used inside the VM. Pure: randomness comes from the caller.
//
// Ed25519 and ML-DSA sign the same bytes. ML-DSA also takes a context string (FIPS 204 section 5.2); Ed25519 has none,
// so the first bytes of a message must tell its kind. A statement begins as a CBOR map, and nothing else that these
// keys sign does.

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

/** FIPS 204 algorithm 2: rnd of the hedged variant. */
const hedgeBytes = 32

/** The pair is one X-Wing key; public: `mlkem768`, then `x25519` (draft-connolly-cfrg-xwing-kem, section 5.2). */
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

/** Both signatures over the same bytes. ML-DSA is hedged with the caller's randomness. */
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

/** Signs statements in JavaScript, on any platform. */
export function portableSigner(keys: SecretKeys, random: Random): SignStatement {
  return statement => signHybrid(keys, statement, { context: statementContext, random })
}
