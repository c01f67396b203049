// AES-256-GCM without additional data (NIST SP 800-38D): the interface, and an implementation with WebCrypto. Pure. A
// server passes a synchronous native one instead: src/linux/native-aes-gcm.ts.

import { webBytes } from '../hash.ts'

type AesGcm = {
  /** Returns the ciphertext followed by its 16-byte tag. Never use a nonce twice with one key. */
  readonly seal: (nonce: Uint8Array, plaintext: Uint8Array) => Uint8Array | Promise<Uint8Array>
  /** Returns the plaintext. Throws or rejects if the tag is wrong. */
  readonly open: (nonce: Uint8Array, ciphertext: Uint8Array) => Uint8Array | Promise<Uint8Array>
}

/** Creates the cipher for a key of 32 bytes. */
export type NewAesGcm = (key: Uint8Array) => AesGcm

export const webAesGcm: NewAesGcm = key => {
  const webKey = crypto.subtle.importKey('raw', webBytes(key), 'AES-GCM', false, ['encrypt', 'decrypt'])
  const algorithm = (nonce: Uint8Array) => ({ name: 'AES-GCM', iv: webBytes(nonce) })
  return {
    seal: async (nonce, plaintext) =>
      new Uint8Array(await crypto.subtle.encrypt(algorithm(nonce), await webKey, webBytes(plaintext))),
    open: async (nonce, ciphertext) =>
      new Uint8Array(await crypto.subtle.decrypt(algorithm(nonce), await webKey, webBytes(ciphertext))),
  }
}
