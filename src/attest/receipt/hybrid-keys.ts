// Hybrid keys: made and used inside the VM. Pure: randomness comes from the caller.
//
// Ed25519 and ML-DSA sign the same bytes. ML-DSA also takes a context string (FIPS 204 section 5.2); Ed25519 has none, so the first bytes of a
// message must tell its kind. A statement begins as a CBOR map, and nothing else that these keys sign does.

import { ml_dsa65 } from '@noble/post-quantum/ml-dsa.js'
import { ml_kem768 } from '@noble/post-quantum/ml-kem.js'
import nacl from 'tweetnacl'
import { assert } from '../../base/assert.ts'
import { utf8 } from '../../base/bytes.ts'
import type { HybridSignature, PublicKeys } from './public-keys.ts'
import { statementFormat } from './statement.ts'

/** `random(n)` gives n bytes that nobody can predict. */
export type Random = (lengthBytes: number) => Uint8Array

export type SecretKeys = {
  readonly ed25519: Uint8Array
  readonly mldsa65: Uint8Array
  readonly x25519: Uint8Array
  readonly mlkem768: Uint8Array
}
export type HybridKeys = { readonly publicKeys: PublicKeys; readonly secretKeys: SecretKeys }

/** The ML-DSA context under which statements are signed. */
export const statementContext = utf8(statementFormat)

/** Seeds in bytes: RFC 8032 section 5.1.5, FIPS 204 algorithm 1, RFC 7748 section 5, FIPS 203 algorithm 19 (d, z). */
const SEED_BYTES = { ed25519: 32, mldsa65: 32, x25519: 32, mlkem768: 64 } as const
/** FIPS 204 algorithm 2: rnd of the hedged variant. */
const hedgeBytes = 32

export function makeHybridKeys(random: Random): HybridKeys {
  const ed25519 = nacl.sign.keyPair.fromSeed(take(random, SEED_BYTES.ed25519))
  const mldsa65 = ml_dsa65.keygen(take(random, SEED_BYTES.mldsa65))
  const x25519 = take(random, SEED_BYTES.x25519)
  const mlkem768 = ml_kem768.keygen(take(random, SEED_BYTES.mlkem768))
  return {
    publicKeys: {
      ed25519: ed25519.publicKey,
      mldsa65: mldsa65.publicKey,
      x25519: nacl.scalarMult.base(x25519),
      mlkem768: mlkem768.publicKey,
    },
    secretKeys: { ed25519: ed25519.secretKey, mldsa65: mldsa65.secretKey, x25519, mlkem768: mlkem768.secretKey },
  }
}

/** Both signatures over the same bytes. ML-DSA is hedged with the caller's randomness. */
export function signHybrid(
  keys: SecretKeys,
  message: Uint8Array,
  options: { readonly context: Uint8Array; readonly random: Random },
): HybridSignature {
  return {
    ed25519: nacl.sign.detached(Uint8Array.from(message), keys.ed25519),
    mldsa65: ml_dsa65.sign(message, keys.mldsa65, {
      context: options.context,
      extraEntropy: take(options.random, hedgeBytes),
    }),
  }
}

function take(random: Random, lengthBytes: number): Uint8Array {
  const bytes = random(lengthBytes)
  assert(
    bytes instanceof Uint8Array && bytes.length === lengthBytes,
    'random gives the number of bytes that was asked for',
  )
  return Uint8Array.from(bytes)
}
