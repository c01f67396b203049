// The public half of a workload's keys: two for signatures and two for key agreement, in each case one classical and
// one post-quantum. Pure. Ed25519: RFC 8032. X25519: RFC 7748. ML-DSA-65: FIPS 204, table 2. ML-KEM-768: FIPS 203,
// table 3.

import { concat } from '../../base/bytes.ts'
import { sha256 } from '../hash.ts'
import { wellFormed } from '../malformed.ts'

/** Sizes in bytes, in the order in which the bundle is hashed. */
export const PUBLIC_KEY_BYTES = {
  ed25519: 32,
  mldsa65: 1952,
  x25519: 32,
  mlkem768: 1184,
} as const satisfies Record<string, number>

export const SIGNATURE_BYTES = { ed25519: 64, mldsa65: 3309 } as const satisfies Record<string, number>

export type PublicKeys = { readonly [Name in keyof typeof PUBLIC_KEY_BYTES]: Uint8Array }
export type HybridSignature = { readonly [Name in keyof typeof SIGNATURE_BYTES]: Uint8Array }

/**
 * Returns SHA-256 over the four public keys in order, each preceded by its length as u32be. Throws Malformed for a
 * wrong length.
 */
export function keysDigest(keys: PublicKeys): Uint8Array {
  const parts = publicKeyNames.flatMap(key => {
    wellFormed(keys[key].length === PUBLIC_KEY_BYTES[key], `keys: ${key} has ${keys[key].length} bytes`)
    const length = new Uint8Array(4)
    new DataView(length.buffer).setUint32(0, keys[key].length)
    return [length, keys[key]]
  })
  return sha256(concat(...parts))
}

const publicKeyNames = ['ed25519', 'mldsa65', 'x25519', 'mlkem768'] as const satisfies (keyof PublicKeys)[]
