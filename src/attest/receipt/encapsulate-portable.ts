// Encapsulation to a receipt's key agreement pair, for either KEM (kem.ts), in JavaScript. Pure: the caller supplies
// randomness. Measured programs use the runtime's own (encapsulate.ts).

import { x25519 } from '@noble/curves/ed25519.js'
import { ml_kem768 } from '@noble/post-quantum/ml-kem.js'
import { concat } from '../../base/bytes.ts'
import { Malformed } from '../malformed.ts'
import type { Encapsulated } from './encapsulate.ts'
import {
  type AgreementKeys,
  dhkemSecret,
  type KemName,
  kemPublicKey,
  pointOf,
  x25519Bytes,
  xwingSecret,
} from './kem.ts'
import { type Random, take } from './seeds.ts'

/** Encapsulates a fresh secret for the owner of the keys. Throws Malformed if the keys are invalid. */
export function encapsulate(kem: KemName, keys: AgreementKeys, random: Random): Encapsulated {
  kemPublicKey(kem, keys)
  if (kem === 'x25519') {
    const { point, ephemeral } = agreeWith(keys.x25519, take(random, x25519Bytes))
    return { sharedSecret: dhkemSecret(point, ephemeral, keys.x25519), encapsulated: ephemeral }
  }
  // Section 5.4 of the draft: take the randomness of ML-KEM first, then that of X25519.
  const lattice = encapsulateLattice(keys.mlkem768, take(random, 32))
  const { point, ephemeral } = agreeWith(keys.x25519, take(random, x25519Bytes))
  return {
    sharedSecret: xwingSecret(lattice.sharedSecret, point, ephemeral, keys.x25519),
    encapsulated: concat(lattice.cipherText, ephemeral),
  }
}

function agreeWith(publicKey: Uint8Array, secretKey: Uint8Array) {
  return {
    point: pointOf(() => x25519.getSharedSecret(secretKey, publicKey)),
    ephemeral: x25519.getPublicKey(secretKey),
  }
}

function encapsulateLattice(publicKey: Uint8Array, randomness: Uint8Array) {
  try {
    return ml_kem768.encapsulate(publicKey, randomness)
  } catch (cause) {
    // Coefficients are not reduced (FIPS 203 section 7.2).
    throw new Malformed('mlkem768: not a public key', { cause })
  }
}
