// Encapsulation to a receipt's key agreement pair, for either KEM (kem.ts), by primitives of the runtime. Pure: the
// primitives are passed in. encapsulate-portable.ts has the same in JavaScript.

import { concat } from '../../base/bytes.ts'
import { Malformed } from '../malformed.ts'
import { type AgreementKeys, dhkemSecret, type KemName, kemPublicKey, pointOf, xwingSecret } from './kem.ts'
import type { Random } from './seeds.ts'

export type Encapsulated = { readonly sharedSecret: Uint8Array; readonly encapsulated: Uint8Array }

/** Makes a fresh secret for the owner of the keys. Throws or rejects with Malformed on invalid keys. */
export type Encapsulate = (kem: KemName, keys: AgreementKeys, random: Random) => Encapsulated | Promise<Encapsulated>

/** Operations that a runtime may do natively. Each draws its own randomness. */
export type EncapsulationPrimitives = {
  /** Throws for a point of small order. */
  readonly x25519: (publicKey: Uint8Array) => { readonly point: Uint8Array; readonly ephemeral: Uint8Array }
  /** Throws or rejects for what is no public key. */
  readonly mlkem768: (
    publicKey: Uint8Array,
  ) => Promise<{ readonly sharedSecret: Uint8Array; readonly cipherText: Uint8Array }>
}

/** As `encapsulate`, by these. Rejects with Malformed on keys that cannot be keys. */
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
