// The sender's context for a request (RFC 9180 section 5.1.1). Pure: randomness comes from the caller.

import type { SenderContext } from 'hpke'
import type { Encapsulate } from '../receipt/encapsulate.ts'
import type { AgreementKeys, KemName } from '../receipt/kem.ts'
import type { Random } from '../receipt/seeds.ts'
import type { NewAesGcm } from './aes-gcm.ts'
import { keyInside, suiteOf, unusedKem } from './hpke.ts'
import { LABELS } from './protocol.ts'

type Sender = Pick<SenderContext, 'Seal' | 'Export'>

/** Rejects with Malformed for keys that cannot be keys. */
export async function setUpSender(
  kem: KemName,
  {
    keys,
    random,
    newAesGcm,
    encapsulate,
  }: {
    readonly keys: AgreementKeys
    readonly random: Random
    readonly newAesGcm: NewAesGcm
    readonly encapsulate: Encapsulate
  },
): Promise<{ readonly sender: Sender; readonly encapsulated: Uint8Array }> {
  const made = await encapsulate(kem, keys, random)
  const suite = suiteOf({
    ...unusedKem(kem),
    Encap: async () => ({ shared_secret: made.sharedSecret, enc: made.encapsulated }),
  })
  const { ctx } = await suite(newAesGcm).SetupSender(keyInside('public'), { info: LABELS.request })
  return { sender: ctx, encapsulated: made.encapsulated }
}
