// Encapsulation to a receipt's key agreement pair, for either KEM (kem.ts), with primitives of the runtime. Pure: the
// caller supplies the primitives. encapsulate-portable.ts does the same in JavaScript.

import { concat } from '../../base/bytes.ts'
import { Malformed } from '../malformed.ts'
import { type AgreementKeys, dhkemSecret, type KemName, kemPublicKey, pointOf, xwingSecret } from './kem.ts'
import type { Random } from './seeds.ts'

export type Encapsulated = { readonly sharedSecret: Uint8Array; readonly encapsulated: Uint8Array }

/** Encapsulates a fresh secret for the owner of the keys. Throws or rejects with Malformed if the keys are invalid. */
export type Encapsulate = (kem: KemName, keys: AgreementKeys, random: Random) => Encapsulated | Promise<Encapsulated>

/** Operations that a runtime may implement natively. Each draws its own randomness. */
export type EncapsulationPrimitives = {
  /** Throws if the point has small order. */
  readonly x25519: (publicKey: Uint8Array) => { readonly point: Uint8Array; readonly ephemeral: Uint8Array }
  /** Throws or rejects if the public key is invalid. */
  readonly mlkem768: (
    publicKey: Uint8Array,
  ) => Promise<{ readonly sharedSecret: Uint8Array; readonly cipherText: Uint8Array }>
}

/** Encapsulates with these primitives. Rejects with Malformed if the keys are invalid. */
export async function encapsulateWith(
  kem: KemName,
  keys: AgreementKeys,
  primitives: EncapsulationPrimitives,
): Promise<Encapsulated> {
  kemPublicKey(kem, keys)
  const { point, ephemeral } = pointOf(() => primitives.x25519(keys.x25519))
  if (kem === 'x25519') return { sharedSecret: dhkemSecret(point, ephemeral, keys.x25519), encapsulated: ephemeral }
  try {
    const { sharedSecret, cipherText } = await primitives.mlkem768(keys.mlkem768)
    return {
      sharedSecret: xwingSecret(sharedSecret, point, ephemeral, keys.x25519),
      encapsulated: concat(cipherText, ephemeral),
    }
  } catch (cause) {
    throw new Malformed('mlkem768: not a public key', { cause })
  }
}
