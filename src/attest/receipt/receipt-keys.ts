// A VM's receipt keys, used through the runtime's native cryptography. Pure: the caller supplies native functions and
// randomness.
//
// Both signatures together take 14 ms in JavaScript and 0.3 ms natively (Bun 1.4.5). Under software emulation
// JavaScript takes seconds.

import { wellFormed } from '../malformed.ts'
import { type Decapsulate, decapsulateWith } from './kem.ts'
import { type HybridSignature, PUBLIC_KEY_BYTES, type PublicKeys } from './public-keys.ts'
import type { SignBoth, SignBothNow } from './response-sign.ts'
import { type Random, SEED_BYTES, take, XWING } from './seeds.ts'
import { statementContext } from './statement.ts'

/** Signs a statement's bytes with both keys. */
export type SignStatement = (statement: Uint8Array) => HybridSignature | Promise<HybridSignature>

type NativeSigner = {
  readonly publicKey: Uint8Array
  /** Signs outside of the caller's thread, which it would block. ML-DSA uses an empty context. */
  readonly sign: (message: Uint8Array) => Promise<Uint8Array>
  /** Signs in the caller's thread. */
  readonly signNow: (message: Uint8Array) => Uint8Array
}

/** Makes key pairs from their seeds (seeds.ts), and computes SHAKE256. Implemented in src/linux/native-keys.ts. */
export type NativeKeys = {
  readonly ed25519: (seed: Uint8Array) => NativeSigner
  readonly mldsa65: (seed: Uint8Array) => NativeSigner & {
    readonly signWithContext: (message: Uint8Array, context: Uint8Array) => Promise<Uint8Array>
  }
  readonly x25519: (secretKey: Uint8Array) => {
    readonly publicKey: Uint8Array
    /** Throws for a point of small order. */
    readonly agree: (publicKey: Uint8Array) => Uint8Array
  }
  readonly mlkem768: (seed: Uint8Array) => {
    readonly publicKey: Uint8Array
    readonly decapsulate: (ciphertext: Uint8Array) => Promise<Uint8Array>
  }
  readonly shake256: (bytes: Uint8Array, lengthBytes: number) => Uint8Array
}

export type ReceiptKeys = {
  readonly publicKeys: PublicKeys
  /** Opens a secret sealed to the key agreement pair. The private keys never leave this object. */
  readonly decapsulate: Decapsulate
  readonly sign: SignBoth
  readonly signNow: SignBothNow
  /** Signs with Ed25519 only. */
  readonly signClassically: (message: Uint8Array) => Uint8Array
  /** Signs with the context for statements. */
  readonly signStatement: SignStatement
}

/** Makes the same keys as `makeHybridKeys` from the same randomness. */
export function makeReceiptKeys(random: Random, native: NativeKeys): ReceiptKeys {
  const ed25519 = native.ed25519(take(random, SEED_BYTES.ed25519))
  const mldsa65 = native.mldsa65(take(random, SEED_BYTES.mldsa65))
  const xwing = native.shake256(take(random, SEED_BYTES.xwing), XWING.expandedBytes)
  const x25519 = native.x25519(xwing.slice(XWING.mlkem768SeedBytes))
  const mlkem768 = native.mlkem768(xwing.slice(0, XWING.mlkem768SeedBytes))
  const publicKeys: PublicKeys = {
    ed25519: ed25519.publicKey,
    mldsa65: mldsa65.publicKey,
    x25519: x25519.publicKey,
    mlkem768: mlkem768.publicKey,
  }
  for (const [name, key] of Object.entries(publicKeys)) {
    wellFormed(key.length === PUBLIC_KEY_BYTES[name as keyof PublicKeys], `native ${name}: ${key.length} bytes`)
  }
  return {
    publicKeys,
    decapsulate: decapsulateWith(publicKeys, { x25519: x25519.agree, mlkem768: mlkem768.decapsulate }),
    // Sequentially, so that one message occupies one thread.
    sign: async message => ({ ed25519: await ed25519.sign(message), mldsa65: await mldsa65.sign(message) }),
    signNow: message => ({ ed25519: ed25519.signNow(message), mldsa65: mldsa65.signNow(message) }),
    signClassically: ed25519.signNow,
    signStatement: async statement => ({
      ed25519: ed25519.signNow(statement),
      mldsa65: await mldsa65.signWithContext(statement, statementContext),
    }),
  }
}
