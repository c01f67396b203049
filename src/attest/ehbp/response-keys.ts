// A response's keys, derived by client and server in the same way, and their ciphers (SPEC.md 4.4; RFC 9458 section
// 4.4). Pure.

import { expand, extract } from '@noble/hashes/hkdf.js'
import { sha256 } from '@noble/hashes/sha2.js'
import { assert } from '../../base/assert.ts'
import { concat } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'
import type { NewAesGcm } from './aes-gcm.ts'
import { LABELS, SIZES } from './protocol.ts'

type ResponseSecrets = {
  /** Secret that the HPKE context exports under the label for responses. */
  readonly exported: Uint8Array
  readonly encapsulated: Uint8Array
  readonly responseNonce: Uint8Array
}

export type ResponseCiphers = {
  /** Cipher of the frames, in order. */
  readonly body: OrderedCipher
  /** Creates the cipher of one message: the sealed headers. Call it once. */
  readonly headers: () => OrderedCipher
}

export function responseCiphers(secrets: ResponseSecrets, newAesGcm: NewAesGcm): ResponseCiphers {
  const { exported, encapsulated, responseNonce } = secrets
  assert(exported.length === SIZES.exported, 'the exported secret has 32 bytes')
  wellFormed(responseNonce.length === SIZES.responseNonce, 'response nonce: not 32 bytes')
  const prk = extract(sha256, exported, concat(encapsulated, responseNonce))
  const cipher = (keyLabel: Uint8Array, nonceLabel: Uint8Array) =>
    new OrderedCipher(expand(sha256, prk, keyLabel, SIZES.key), expand(sha256, prk, nonceLabel, SIZES.nonce), newAesGcm)
  return {
    body: cipher(LABELS.key, LABELS.nonce),
    // Derived only on demand: most responses have no sealed headers.
    headers: () => cipher(LABELS.headersKey, LABELS.headersNonce),
  }
}

/**
 * Message n, counted from 0, uses the nonce XOR n. A message that is lost, repeated or reordered therefore fails to
 * open.
 */
export class OrderedCipher {
  readonly #aes: ReturnType<NewAesGcm>
  readonly #nonceBase: Uint8Array
  #count = 0

  constructor(key: Uint8Array, nonceBase: Uint8Array, newAesGcm: NewAesGcm) {
    this.#aes = newAesGcm(key)
    this.#nonceBase = nonceBase
  }

  seal(plaintext: Uint8Array): Uint8Array | Promise<Uint8Array> {
    return this.#aes.seal(this.#nextNonce(), plaintext)
  }

  /** Opens the next message. Throws or rejects for any other bytes. */
  open(ciphertext: Uint8Array): Uint8Array | Promise<Uint8Array> {
    return this.#aes.open(this.#nextNonce(), ciphertext)
  }

  #nextNonce(): Uint8Array {
    assert(this.#count <= 0xffff_ffff, 'a response has at most 2^32 frames')
    const nonce = this.#nonceBase.slice()
    const view = new DataView(nonce.buffer)
    view.setUint32(SIZES.nonce - 4, view.getUint32(SIZES.nonce - 4) ^ this.#count)
    this.#count += 1
    return nonce
  }
}
