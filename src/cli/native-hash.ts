// The runtime's native hashes, in the place of the attestation library's portable ones. Pure.

import type { Hash } from '../attest/hash.ts'

export const nativeSha256: Hash = bytes => new Uint8Array(Bun.CryptoHasher.hash('sha256', bytes))
export const nativeSha384: Hash = bytes => new Uint8Array(Bun.CryptoHasher.hash('sha384', bytes))
