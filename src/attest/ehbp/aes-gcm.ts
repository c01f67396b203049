// AES-256-GCM without additional data (NIST SP 800-38D), as an interface with one implementation by WebCrypto. Pure.
// A server passes a synchronous native one instead: src/linux/native-aes-gcm.ts.

import { webBytes } from '../hash.ts'

type AesGcm = {
  /** The ciphertext, then its tag of 16 bytes. A nonce is never used twice with a key. */
  readonly seal: (nonce: Uint8Array, plaintext: Uint8Array) => Uint8Array | Promise<Uint8Array>
  /** Throws or rejects when the tag is not right. */
  readonly open: (nonce: Uint8Array, ciphertext: Uint8Array) => Uint8Array | Promise<Uint8Array>
}

/** For a key of 32 bytes. */
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
