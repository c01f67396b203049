// `attestedFetch` in Bun and Node: connections pinned to the attested TLS key, encrypted bodies. Effects: network.

import { systemClock } from '../../base/clock.ts'
import { systemRandom } from '../../base/ids.ts'
import { nativeAesGcm } from '../../linux/native-aes-gcm.ts'
import { type AttestedFetch, createAttestedFetch } from './attested-fetch.ts'
import { createNodeTransport } from './node-transport.ts'
import type { AttestedFetchOptions } from './options.ts'
import { portableCrypto } from './portable-crypto.ts'

/**
 * Creates a `fetch` that only accepts one attested gateway. Throws OptionError. Sends nothing before the first call.
 */
export function attestedFetch(options: AttestedFetchOptions): AttestedFetch {
  return createAttestedFetch(options, {
    createTransport: createNodeTransport,
    clock: systemClock,
    random: systemRandom,
    crypto: {
      ...portableCrypto,
      // WebCrypto would send each message to another thread and back.
      sealing: { ...portableCrypto.sealing, newAesGcm: nativeAesGcm },
    },
  })
}
