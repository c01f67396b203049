// SHA-2 in JavaScript, for short inputs and chains, and by WebCrypto, for long ones; bytes for WebCrypto. Pure.

import { sha256 as nobleSha256, sha384 as nobleSha384, sha512 as nobleSha512 } from '@noble/hashes/sha2.js'

/** A synchronous hash function. A caller may pass a native one instead of ours where speed matters. */
export type Hash = (bytes: Uint8Array) => Uint8Array

export const sha256: Hash = nobleSha256
export const sha384: Hash = nobleSha384
export const sha512: Hash = nobleSha512

export type HashName = 'SHA-1' | 'SHA-256' | 'SHA-384' | 'SHA-512'

/** By WebCrypto, which is native: for long inputs, and for many at once. */
export async function digest(name: HashName, bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest(name, webBytes(bytes)))
}

/** The same bytes, for WebCrypto: its types refuse memory shared between threads, which this library never has. */
export function webBytes(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return bytes as Uint8Array<ArrayBuffer>
}
