// The sender's half of X25519 and ML-KEM-768 by the runtime's native cryptography: 0.07 ms for both, JavaScript takes
// 1.4. Effects: randomness.

import { createPublicKey, diffieHellman, generateKeyPairSync } from 'node:crypto'

/** SubjectPublicKeyInfo of an X25519 key, up to the key: RFC 8410 section 4. */
const x25519SpkiHead = Buffer.from('302a300506032b656e032100', 'hex')
const x25519Bytes = 32

/** From the draft "Modern Algorithms in the Web Cryptography API"; Bun's types lack it. */
type Encapsulation = {
  readonly encapsulateBits: (
    algorithm: string,
    key: CryptoKey,
  ) => Promise<{ readonly sharedKey: ArrayBuffer; readonly ciphertext: ArrayBuffer }>
}

/** Keyed by the byte array itself: keys of verified evidence serve many requests and never change. */
const imported = new WeakMap<Uint8Array, Promise<CryptoKey>>()

function importedKey(publicKey: Uint8Array): Promise<CryptoKey> {
  const usage = 'encapsulateBits' as 'encrypt'
  const known = imported.get(publicKey)
  if (known !== undefined) return known
  const bytes = Uint8Array.from(publicKey)
  const key = crypto.subtle.importKey('raw-public' as 'raw', bytes, 'ML-KEM-768', false, [usage])
  imported.set(publicKey, key)
  return key
}

/** Implements EncapsulationPrimitives of attest/receipt/encapsulate.ts. */
export const nativeEncapsulation = {
  /** Throws on a point of small order. */
  x25519: (peer: Uint8Array) => {
    const { privateKey, publicKey } = generateKeyPairSync('x25519')
    const spki = Buffer.concat([x25519SpkiHead, peer])
    const peerKey = createPublicKey({ key: spki, format: 'der', type: 'spki' })
    return {
      point: new Uint8Array(diffieHellman({ privateKey, publicKey: peerKey })),
      ephemeral: new Uint8Array(publicKey.export({ format: 'der', type: 'spki' }).subarray(-x25519Bytes)),
    }
  },
  mlkem768: async (publicKey: Uint8Array) => {
    const subtle = crypto.subtle as SubtleCrypto & Encapsulation
    const { sharedKey, ciphertext } = await subtle.encapsulateBits('ML-KEM-768', await importedKey(publicKey))
    return { sharedSecret: new Uint8Array(sharedKey), cipherText: new Uint8Array(ciphertext) }
  },
}
