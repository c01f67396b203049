// Sends requests to one attested gateway, using only Bun's cryptography. Effects: the network.

import { encapsulateWith } from '../../attest/receipt/encapsulate.ts'
import { webVerifiers } from '../../attest/receipt/hybrid-verify.ts'
import { systemClock } from '../../base/clock.ts'
import { systemRandom } from '../../base/ids.ts'
import { nativeAesGcm } from '../../linux/native-aes-gcm.ts'
import { nativeEncapsulation } from '../../linux/native-encapsulation.ts'
import { type AttestedFetch, createAttestedFetch } from './attested-fetch.ts'
import type { Sender } from './endpoint/endpoint.ts'
import { createNodeTransport } from './node-transport.ts'
import type { AttestedFetchOptions } from './options.ts'

export type AttestedSender = Sender & Pick<AttestedFetch, 'verify' | 'evidence'>

/** Creates the sender without opening a connection. Throws OptionError. */
export function createAttestedSender(options: AttestedFetchOptions): AttestedSender {
  const fetch = createAttestedFetch(options, {
    createTransport: createNodeTransport,
    clock: systemClock,
    random: systemRandom,
    crypto: {
      verifiers: webVerifiers,
      sealing: {
        newAesGcm: nativeAesGcm,
        encapsulate: (kem, keys) => encapsulateWith(kem, keys, nativeEncapsulation),
      },
    },
  })
  return { send: (url, init) => fetch(url, init), close: fetch.close, verify: fetch.verify, evidence: fetch.evidence }
}
