// Algorithm identifiers of TPM 2.0 that this library supports. Pure. TCG TPM 2.0 Library, Part 2, section 6.3
// (TPM_ALG_ID) and section 6.4 (TPM_ECC_CURVE).

import { sha1 } from '@noble/hashes/legacy.js'
import { type Hash, type HashName, sha256, sha384, sha512 } from '../hash.ts'

export const ALGORITHM = {
  rsa: 0x0001,
  aes: 0x0006,
  null: 0x0010,
  rsassa: 0x0014,
  rsaes: 0x0015,
  rsapss: 0x0016,
  oaep: 0x0017,
  ecdsa: 0x0018,
  ecc: 0x0023,
  cfb: 0x0043,
} as const satisfies Record<string, number>

/** PCR banks, and hashes of signatures. SHA-1 is in the table only so that a rejection can name it. */
export const BANKS = {
  'SHA-1': { id: 0x0004, sizeBytes: 20, hash: sha1 },
  'SHA-256': { id: 0x000b, sizeBytes: 32, hash: sha256 },
  'SHA-384': { id: 0x000c, sizeBytes: 48, hash: sha384 },
  'SHA-512': { id: 0x000d, sizeBytes: 64, hash: sha512 },
} as const satisfies Record<HashName, { readonly id: number; readonly sizeBytes: number; readonly hash: Hash }>

export type StrongHash = Exclude<HashName, 'SHA-1'>

/** Returns the bank of an algorithm; null if it is not in the table. */
export function bankOf(id: number): HashName | null {
  return bankNames.find(name => BANKS[name].id === id) ?? null
}

export const bankNames = ['SHA-1', 'SHA-256', 'SHA-384', 'SHA-512'] as const satisfies HashName[]

/** Curves by their WebCrypto names, with the coordinate size in bytes. */
export const CURVES = {
  'P-256': { id: 0x0003, sizeBytes: 32 },
  'P-384': { id: 0x0004, sizeBytes: 48 },
  'P-521': { id: 0x0005, sizeBytes: 66 },
} as const satisfies Record<string, { readonly id: number; readonly sizeBytes: number }>

export type CurveName = keyof typeof CURVES

export const curveNames = ['P-256', 'P-384', 'P-521'] as const satisfies CurveName[]
