// The plain form of a sealed request, which every EHBP server opens. Pure: randomness comes from the caller.

import { toHex } from '../../base/bytes.ts'
import { encapsulate as portably } from '../receipt/encapsulate-portable.ts'
import { webAesGcm } from './aes-gcm.ts'
import { frameOf, requireBody, responseOpening, type SealedRequest, type SealOptions } from './client.ts'
import { hpkeContext } from './hpke.ts'
import { LABELS } from './protocol.ts'

/** `encapsulate`: JavaScript's by default. */
type Options = Omit<SealOptions, 'encapsulate'> & Partial<Pick<SealOptions, 'encapsulate'>>

/** Rejects with Malformed for keys that cannot be keys, and for an empty body: EHBP does not seal one. */
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
