// Seeds of the hybrid keys, in the order in which they are drawn. Pure: the caller supplies randomness.

import { assert } from '../../base/assert.ts'

/** `random(n)` returns n unpredictable bytes. */
export type Random = (lengthBytes: number) => Uint8Array

/** Sizes in bytes: RFC 8032 section 5.1.5, FIPS 204 algorithm 1, draft-connolly-cfrg-xwing-kem section 5.2. */
export const SEED_BYTES = { ed25519: 32, mldsa65: 32, xwing: 32 } as const

/** SHAKE256 expands an X-Wing seed to d and z of FIPS 203 algorithm 19, then the X25519 key of RFC 7748 section 5. */
export const XWING = { expandedBytes: 96, mlkem768SeedBytes: 64 } as const

/** Draws bytes. Throws if `random` returns another number of bytes. */
export function take(random: Random, lengthBytes: number): Uint8Array {
  const bytes = random(lengthBytes)
  assert(bytes instanceof Uint8Array && bytes.length === lengthBytes, 'random returns the requested number of bytes')
  return Uint8Array.from(bytes)
}
