// Sessions of bound requests: one encapsulation serves many. Pure.
//
// Both sides export one secret from the HPKE context of an encapsulated key. Each request has a nonce of 32 bytes. HKDF
// over secret, nonce and binding (binding.ts) yields the key of the request's body, and the secret for the keys of its
// response. No key therefore serves two requests: a body opens only for its own method, path and API key, and a
// response only for its own request. A server that evicted a session recomputes its secret: every request repeats the
// encapsulated key.

import { expand, extract } from '@noble/hashes/hkdf.js'
import { sha256 } from '@noble/hashes/sha2.js'
import { concat } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'
import type { NewAesGcm } from './aes-gcm.ts'
import { LABELS, SIZES } from './protocol.ts'
import { OrderedCipher } from './response-keys.ts'

export type RequestSecrets = {
  /** Cipher of the frames of the body, in order. */
  readonly body: OrderedCipher
  /** Replaces the context's own exported secret, from which the response's keys are derived. */
  readonly exported: Uint8Array
}

export type BoundParts = {
  readonly requestNonce: Uint8Array
  /** Result of `bindingOf`. */
  readonly binding: Uint8Array
}

export function requestSecrets(
  session: Uint8Array,
  { requestNonce, binding }: BoundParts,
  newAesGcm: NewAesGcm,
): RequestSecrets {
  wellFormed(requestNonce.length === SIZES.requestNonce, 'request nonce: not 32 bytes')
  const prk = extract(sha256, session, requestNonce)
  const derived = (label: Uint8Array, bytes: number) => expand(sha256, prk, concat(label, binding), bytes)
  return {
    body: new OrderedCipher(
      derived(LABELS.requestKey, SIZES.key),
      derived(LABELS.requestNonce, SIZES.nonce),
      newAesGcm,
    ),
    exported: derived(LABELS.requestExport, SIZES.exported),
  }
}
