// Sessions: requests after the first one need no encapsulation of their own. Pure.
//
// Both sides export one secret from the HPKE context of an encapsulated key. Each request draws a nonce of 32 bytes;
// the key of its body, and the secret that its response's keys come from, are HKDF's of secret and nonce. So no key
// serves two requests, nobody keeps a counter, and a response opens for its own request alone. A server that has
// forgotten a session computes its secret again from the encapsulated key, which every request repeats.

import { expand, extract } from '@noble/hashes/hkdf.js'
import { sha256 } from '@noble/hashes/sha2.js'
import { wellFormed } from '../malformed.ts'
import type { NewAesGcm } from './aes-gcm.ts'
import { LABELS, SIZES } from './protocol.ts'
import { OrderedCipher } from './response-keys.ts'

export type RequestSecrets = {
  /** The frames of the body, in their order. */
  readonly body: OrderedCipher
  /** In the place of the context's own: the response's keys come from it. */
  readonly exported: Uint8Array
}

export function requestSecrets(session: Uint8Array, requestNonce: Uint8Array, newAesGcm: NewAesGcm): RequestSecrets {
  wellFormed(requestNonce.length === SIZES.requestNonce, 'request nonce: not 32 bytes')
  const prk = extract(sha256, session, requestNonce)
  const key = expand(sha256, prk, LABELS.requestKey, SIZES.key)
  const nonce = expand(sha256, prk, LABELS.requestNonce, SIZES.nonce)
  return {
    body: new OrderedCipher(key, nonce, newAesGcm),
    exported: expand(sha256, prk, LABELS.requestExport, SIZES.exported),
  }
}
