// The two KEMs of HPKE (RFC 9180) for a receipt's key agreement pair: DHKEM(X25519) uses its X25519 half, X-Wing both
// halves. Shared functions, and decapsulation. Pure: the caller holds the private keys. encapsulate.ts is the other
// side, which a gateway's VM does not need.
//
// Both may share one X25519 key: DHKEM extracts under the label of its own suite, X-Wing hashes under another (the
// draft's section 5.3), and neither reveals the shared point. DHKEM(X25519, HKDF-SHA256): RFC 9180 sections 4.1 and
// 7.1. X-Wing: draft-connolly-cfrg-xwing-kem, section 5.

import { expand, extract } from '@noble/hashes/hkdf.js'
import { sha256 } from '@noble/hashes/sha2.js'
import { sha3_256 } from '@noble/hashes/sha3.js'
import { concat, utf8 } from '../../base/bytes.ts'
import { Malformed, wellFormed } from '../malformed.ts'
import type { PublicKeys } from './public-keys.ts'

export const x25519Bytes = 32
const mlkem768PublicKeyBytes = 1184
const mlkem768CiphertextBytes = 1088

/** `id`: number in IANA's HPKE registry. */
export const KEMS = {
  x25519: { id: 0x0020, publicKeyBytes: x25519Bytes, encapsulatedBytes: x25519Bytes },
  xwing: {
    id: 0x647a,
    publicKeyBytes: mlkem768PublicKeyBytes + x25519Bytes,
    encapsulatedBytes: mlkem768CiphertextBytes + x25519Bytes,
  },
} as const satisfies Record<
  string,
  { readonly id: number; readonly publicKeyBytes: number; readonly encapsulatedBytes: number }
>
export type KemName = keyof typeof KEMS
export const kemNames = ['x25519', 'xwing'] as const satisfies readonly KemName[]

/** The key agreement pair of a receipt. */
export type AgreementKeys = Pick<PublicKeys, 'x25519' | 'mlkem768'>

/**
 * Returns the sender's 32-byte secret. Rejects with Malformed if no honest sender could have made the value; see
 * `AgreementSecrets`.
 */
export type Decapsulate = (kem: KemName, encapsulated: Uint8Array) => Promise<Uint8Array>

/** Returns the KEM's public key of a receipt's pair. Throws Malformed if a key has the wrong length. */
export function kemPublicKey(kem: KemName, keys: AgreementKeys): Uint8Array {
  const publicKey = kem === 'x25519' ? keys.x25519 : concat(keys.mlkem768, keys.x25519)
  wellFormed(publicKey.length === KEMS[kem].publicKeyBytes, `${kem}: a public key of ${publicKey.length} bytes`)
  return publicKey
}

/** The private halves, behind functions: each returns the shared secret of RFC 7748 or FIPS 203. */
type AgreementSecrets = {
  /** Throws for a point of small order, whose secret would be all zeros (RFC 7748 section 6.1). */
  readonly x25519: (publicKey: Uint8Array) => Uint8Array
  readonly mlkem768: (ciphertext: Uint8Array) => Uint8Array | Promise<Uint8Array>
}

/**
 * Returns a Decapsulate that rejects with Malformed for a wrong length or an X25519 point of small order. ML-KEM
 * rejects implicitly (FIPS 203).
 */
export function decapsulateWith(publicKeys: AgreementKeys, secrets: AgreementSecrets): Decapsulate {
  return async (kem, encapsulated) => {
    wellFormed(encapsulated.length === KEMS[kem].encapsulatedBytes, `${kem}: an encapsulated key of another length`)
    const ephemeral = encapsulated.slice(encapsulated.length - x25519Bytes)
    const point = pointOf(() => secrets.x25519(ephemeral))
    if (kem === 'x25519') return dhkemSecret(point, ephemeral, publicKeys.x25519)
    const lattice = await secrets.mlkem768(encapsulated.slice(0, mlkem768CiphertextBytes))
    return xwingSecret(lattice, point, ephemeral, publicKeys.x25519)
  }
}

/** Runs a key agreement. Throws Malformed for a point of small order. */
export function pointOf<Agreed>(agree: () => Agreed): Agreed {
  try {
    return agree()
  } catch (cause) {
    throw new Malformed('x25519: a point of small order', { cause })
  }
}

/** Label of every hash in DHKEM(X25519) (RFC 9180 section 4). */
const dhkemSuite = concat(utf8('KEM'), Uint8Array.of(KEMS.x25519.id >> 8, KEMS.x25519.id & 0xff))
const hpkeVersion = utf8('HPKE-v1')

/** Derives the shared secret: ExtractAndExpand of RFC 9180 section 4.1. */
export function dhkemSecret(point: Uint8Array, ephemeral: Uint8Array, publicKey: Uint8Array): Uint8Array {
  const prk = extract(sha256, concat(hpkeVersion, dhkemSuite, utf8('eae_prk'), point), new Uint8Array(0))
  const lengthAndLabel = concat(Uint8Array.of(0, 32), hpkeVersion, dhkemSuite, utf8('shared_secret'))
  return expand(sha256, prk, concat(lengthAndLabel, ephemeral, publicKey), 32)
}

/** Combines both secrets (Combiner in the draft's section 5.3). The label is ASCII art. */
export function xwingSecret(
  lattice: Uint8Array,
  point: Uint8Array,
  ephemeral: Uint8Array,
  publicKey: Uint8Array,
): Uint8Array {
  return sha3_256(concat(lattice, point, ephemeral, publicKey, utf8('\\.//^\\')))
}
