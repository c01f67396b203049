// Identifiers and secrets. Randomness comes in as a function so that tests can fix it.

import { toHex } from './bytes.ts'

/** Fills an array with cryptographically strong random bytes. */
export type RandomBytes = (lengthBytes: number) => Uint8Array

export const systemRandom: RandomBytes = lengthBytes => crypto.getRandomValues(new Uint8Array(lengthBytes))

const LOWERCASE_ALPHANUMERIC = 'abcdefghijklmnopqrstuvwxyz0123456789'

/** Uniform lowercase alphanumeric text; bytes that would bias the choice are rejected. */
export function randomName(length: number, random: RandomBytes): string {
  const usable = 256 - (256 % LOWERCASE_ALPHANUMERIC.length)
  let name = ''
  while (name.length < length) {
    for (const byte of random(length * 2)) {
      if (byte < usable && name.length < length) name += LOWERCASE_ALPHANUMERIC[byte % LOWERCASE_ALPHANUMERIC.length]
    }
  }
  return name
}

/** A random version 4 UUID (RFC 9562 5.4). */
export function newUuid(random: RandomBytes = systemRandom): string {
  const bytes = random(16)
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
  const hex = toHex(bytes)
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`
}
