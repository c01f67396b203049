// SHA-2, synchronous for short inputs and chains, and with WebCrypto for long inputs. Pure: the choice of
// implementation changes no result.

import { sha256 as nobleSha256, sha384 as nobleSha384, sha512 as nobleSha512 } from '@noble/hashes/sha2.js'

/** A synchronous hash function. For speed, a caller may pass a native one. */
export type Hash = (bytes: Uint8Array) => Uint8Array

export type Hashes = { readonly sha256: Hash; readonly sha384: Hash; readonly sha512: Hash }

/** JavaScript implementations: no native hash is synchronous in all of browsers, Bun and Node. */
const portableHashes: Hashes = { sha256: nobleSha256, sha384: nobleSha384, sha512: nobleSha512 }
let used = portableHashes

/**
 * Sets the runtime's own hashes for this process; null restores the defaults. JavaScript that runs for the first time
 * is a hundred times slower.
 */
export function useHashes(hashes: Hashes | null): void {
  used = hashes ?? portableHashes
}

export const sha256: Hash = bytes => used.sha256(bytes)
export const sha384: Hash = bytes => used.sha384(bytes)
export const sha512: Hash = bytes => used.sha512(bytes)

export type HashName = 'SHA-1' | 'SHA-256' | 'SHA-384' | 'SHA-512'

/** Hashes with WebCrypto, which is native: for long inputs, and for many inputs concurrently. */
export async function digest(name: HashName, bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest(name, webBytes(bytes)))
}

/** Returns the same bytes, typed for WebCrypto. Its types refuse shared memory, which this library never uses. */
export function webBytes(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return bytes as Uint8Array<ArrayBuffer>
}
