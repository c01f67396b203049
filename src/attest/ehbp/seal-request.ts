// The plain form of a sealed request, which every EHBP server opens. Pure: the caller supplies randomness.

import { toHex } from '../../base/bytes.ts'
import { encapsulate as portably } from '../receipt/encapsulate-portable.ts'
import { webAesGcm } from './aes-gcm.ts'
import { frameOf, requireBody, responseOpening, type SealedRequest, type SealOptions } from './client.ts'
import { hpkeContext } from './hpke.ts'
import { LABELS } from './protocol.ts'

/** `encapsulate` defaults to the JavaScript implementation. */
type Options = Omit<SealOptions, 'encapsulate'> & Partial<Pick<SealOptions, 'encapsulate'>>

/** Seals a request. Rejects with Malformed if the keys are invalid or the body is empty, which EHBP does not seal. */
export async function sealRequest(
  { keys, suite, random, newAesGcm = webAesGcm, encapsulate = portably }: Options,
  body: Uint8Array,
): Promise<SealedRequest> {
  requireBody(body)
  const { sharedSecret, encapsulated } = await encapsulate(suite, keys, random)
  const { cipher, exportSecret } = hpkeContext(suite, sharedSecret, newAesGcm)
  const ciphertext = await cipher.seal(body)
  const exported = exportSecret(LABELS.response)
  return {
    headers: { 'ehbp-encapsulated-key': toHex(encapsulated) },
    body: frameOf(ciphertext),
    openResponse: responseOpening({ exported, encapsulated, newAesGcm }),
  }
}
