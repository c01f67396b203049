// Secrets of links and sessions: 32 random bytes, of which only the SHA-256 is kept. Pure: randomness is an argument.

import { toBase64Url } from '../../base/bytes.ts'
import type { RandomBytes } from '../../base/ids.ts'

const secretBytes = 32
const pattern = /^[A-Za-z0-9_-]{43}$/

export type Token = {
  /** Base64url, shown once. */
  readonly text: string
  /** SHA-256 of the text, hexadecimal: finding it in a map says nothing about the secret by its time. */
  readonly digest: string
}

export function drawToken(random: RandomBytes): Token {
  const text = toBase64Url(random(secretBytes))
  return { text, digest: digestOf(text) }
}

/** Null if it does not have the form of a token. */
export function tokenDigest(text: string): string | null {
  return pattern.test(text) ? digestOf(text) : null
}

function digestOf(text: string): string {
  return new Bun.CryptoHasher('sha256').update(text).digest('hex')
}
