// SHA-2 at once, for short inputs and chains, and by WebCrypto, for long ones; bytes for WebCrypto. Pure: which of two
// implementations is used changes no result.

import { sha256 as nobleSha256, sha384 as nobleSha384, sha512 as nobleSha512 } from '@noble/hashes/sha2.js'

/** A synchronous hash function. A caller may pass a native one instead of ours where speed matters. */
export type Hash = (bytes: Uint8Array) => Uint8Array

export type Hashes = { readonly sha256: Hash; readonly sha384: Hash; readonly sha512: Hash }

/** In JavaScript. No platform has one that answers at once in all of browsers, Bun and Node. */
const portableHashes: Hashes = { sha256: nobleSha256, sha384: nobleSha384, sha512: nobleSha512 }
let used = portableHashes

/** For this process, the runtime's own: JavaScript that runs for the first time takes a hundred times as long. */
export function useHashes(hashes: Hashes | null): void {
  used = hashes ?? portableHashes
}

export const sha256: Hash = bytes => used.sha256(bytes)
export const sha384: Hash = bytes => used.sha384(bytes)
export const sha512: Hash = bytes => used.sha512(bytes)

export type HashName = 'SHA-1' | 'SHA-256' | 'SHA-384' | 'SHA-512'

/** By WebCrypto, which is native: for long inputs, and for many at once. */
export async function digest(name: HashName, bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest(name, webBytes(bytes)))
}

/** The same bytes, for WebCrypto: its types refuse memory shared between threads, which this library never has. */
export function webBytes(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return bytes as Uint8Array<ArrayBuffer>
}
