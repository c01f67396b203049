// A response's keys, derived alike by client and server, and their ciphers (SPEC.md 4.4; RFC 9458 section 4.4). Pure.

import { expand, extract } from '@noble/hashes/hkdf.js'
import { sha256 } from '@noble/hashes/sha2.js'
import { assert } from '../../base/assert.ts'
import { concat } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'
import type { NewAesGcm } from './aes-gcm.ts'
import { LABELS, SIZES } from './protocol.ts'

type ResponseSecrets = {
  /** Secret that the HPKE context exports under the label of responses. */
  readonly exported: Uint8Array
  readonly encapsulated: Uint8Array
  readonly responseNonce: Uint8Array
}

export type ResponseCiphers = {
  /** The frames' contents, in their order. */
  readonly body: OrderedCipher
  /** For one message; call it once. */
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
    // Most responses have none.
    headers: () => cipher(LABELS.headersKey, LABELS.headersNonce),
  }
}

/** The n-th message, counted from 0, has the nonce XOR n. So one that is lost, doubled or moved does not open. */
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

  /** Throws or rejects when these are not the bytes of the next message. */
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
