// Secrets of links and sessions: 32 random bytes, of which only the SHA-256 is stored. Pure: the caller passes
// randomness.

import { toBase64Url } from '../../base/bytes.ts'
import type { RandomBytes } from '../../base/ids.ts'

const secretBytes = 32
const pattern = /^[A-Za-z0-9_-]{43}$/

export type Token = {
  /** The secret in base64url, shown once. */
  readonly text: string
  /** SHA-256 of the text, hexadecimal. The timing of a map lookup with it reveals nothing about the secret. */
  readonly digest: string
}

export function drawToken(random: RandomBytes): Token {
  const text = toBase64Url(random(secretBytes))
  return { text, digest: digestOf(text) }
}

/** Returns the digest of a token; null if the text does not have the form of a token. */
export function tokenDigest(text: string): string | null {
  return pattern.test(text) ? digestOf(text) : null
}

function digestOf(text: string): string {
  return new Bun.CryptoHasher('sha256').update(text).digest('hex')
}
