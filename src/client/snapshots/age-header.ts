// The header of a ciphertext of age, and the same for another identity (age-encryption.org/v1). Effects: randomness.
//
// A VM that restores a snapshot gets a header for an identity of this one use. So it learns the key of this file, and
// nothing of the owner's.

import { chacha20poly1305 } from '@noble/ciphers/chacha.js'
import { x25519 } from '@noble/curves/ed25519.js'
import { hkdf } from '@noble/hashes/hkdf.js'
import { hmac } from '@noble/hashes/hmac.js'
import { sha256 } from '@noble/hashes/sha2.js'
import { bech32 } from '@scure/base'
import { concat, utf8 } from '../../base/bytes.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { unpadded } from './age-ssh.ts'

/** Share: as many recipients as a VM has keys need far less. */
export const ageHeaderBytesMax = 65_536

const version = 'age-encryption.org/v1'
const label = utf8('age-encryption.org/v1/X25519')

/** Returns the header at the beginning of a ciphertext, its last line included; null if it is not whole. */
export function ageHeaderIn(bytes: Uint8Array): Uint8Array | null {
  const text = Buffer.from(bytes).toString('latin1')
  const [header] = /^age-encryption\.org\/v1\n(?:.*\n)*?--- [A-Za-z0-9+/]{43}\n/.exec(text) ?? []
  return header === undefined ? null : bytes.subarray(0, header.length)
}

export type OneTimeHeader = {
  /** In age's spelling; opens files under `header` alone. */
  readonly identity: string
  readonly header: Uint8Array
}

/** Wraps the key of a file for an identity that is made here. */
export function oneTimeHeader(fileKey: Uint8Array, random: RandomBytes): OneTimeHeader {
  const [scalar, ephemeral] = [random(32), random(32)]
  const recipient = x25519.getPublicKey(scalar)
  const share = x25519.getPublicKey(ephemeral)
  const shared = x25519.getSharedSecret(ephemeral, recipient)
  const wrapped = chacha20poly1305(hkdf(sha256, shared, concat(share, recipient), label, 32), new Uint8Array(12))
  const stanza = `-> X25519 ${unpadded(share)}\n${unpadded(wrapped.encrypt(fileKey))}\n`
  const text = `${version}\n${stanza}---`
  const mac = hmac(sha256, hkdf(sha256, fileKey, undefined, utf8('header'), 32), utf8(text))
  const identity = bech32.encodeFromBytes('AGE-SECRET-KEY-', scalar).toUpperCase()
  return { identity, header: utf8(`${text} ${unpadded(mac)}\n`) }
}
