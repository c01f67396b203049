// AES-256-GCM by the runtime's native cryptography, synchronous: 3 µs for a short message (WebCrypto: 30 to 40). A long
// message is opened in turns of the event loop. Pure.

import { createCipheriv, createDecipheriv } from 'node:crypto'
import { createCooperativeQueue, type Turns } from '../base/work/turns.ts'

const algorithm = 'aes-256-gcm'
const tagBytes = 16

/** Implements NewAesGcm of attest/ehbp/aes-gcm.ts. */
export function nativeAesGcm(key: Uint8Array) {
  return {
    seal: (nonce: Uint8Array, plaintext: Uint8Array): Uint8Array => {
      const cipher = createCipheriv(algorithm, key, nonce)
      const sealed = cipher.update(plaintext)
      cipher.final()
      return Buffer.concat([sealed, cipher.getAuthTag()])
    },
    /** Throws when the tag is not right, or is no whole tag; rejects for a long message. */
    open: (nonce: Uint8Array, ciphertext: Uint8Array): Uint8Array | Promise<Uint8Array> => {
      const tagAt = ciphertext.length - tagBytes
      if (tagAt < 0) throw new Error('a ciphertext that is shorter than its tag')
      const decipher = createDecipheriv(algorithm, key, nonce, { authTagLength: tagBytes })
      decipher.setAuthTag(ciphertext.subarray(tagAt))
      const sealed = ciphertext.subarray(0, tagAt)
      if (tagAt > openedPerTurn) return inTurns(openTurns(decipher, sealed))
      const plaintext = decipher.update(sealed)
      decipher.final()
      return plaintext
    },
  }
}

const openedPerTurn = 524_288
const inTurns = createCooperativeQueue()

/** Nothing of the plaintext leaves before the tag is checked. */
function* openTurns(decipher: ReturnType<typeof createDecipheriv>, sealed: Uint8Array): Turns<Uint8Array> {
  const plaintext = new Uint8Array(sealed.length)
  for (let at = 0; at < sealed.length; at += openedPerTurn) {
    plaintext.set(decipher.update(sealed.subarray(at, at + openedPerTurn)), at)
    yield
  }
  decipher.final()
  return plaintext
}
