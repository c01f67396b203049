// The plain form of a sealed request, which every EHBP server opens. Pure: randomness comes from the caller.

import { toHex } from '../../base/bytes.ts'
import { encapsulate as portably } from '../receipt/encapsulate-portable.ts'
import { webAesGcm } from './aes-gcm.ts'
import { frameOf, requireBody, responseOpening, type SealedRequest, type SealOptions } from './client.ts'
import { setUpSender } from './hpke-sender.ts'
import { LABELS, SIZES } from './protocol.ts'

/** `encapsulate`: JavaScript's by default. */
type Options = Omit<SealOptions, 'encapsulate'> & Partial<Pick<SealOptions, 'encapsulate'>>

/** Rejects with Malformed for keys that cannot be keys, and for an empty body: EHBP does not seal one. */
export async function sealRequest(
  { keys, suite, random, newAesGcm = webAesGcm, encapsulate = portably }: Options,
  body: Uint8Array,
): Promise<SealedRequest> {
  requireBody(body)
  const { sender, encapsulated } = await setUpSender(suite, { keys, random, newAesGcm, encapsulate })
  const ciphertext = await sender.Seal(body)
  const exported = await sender.Export(LABELS.response, SIZES.exported)
  return {
    headers: { 'ehbp-encapsulated-key': toHex(encapsulated) },
    body: frameOf(ciphertext),
    openResponse: responseOpening({ exported, encapsulated, newAesGcm }),
  }
}
