// The package's entry for pages and their workers. They cannot see a connection's key, so only the encryption to the
// attested key protects requests. Effects: the network.

import { systemClock } from '../../base/clock.ts'
import { systemRandom } from '../../base/ids.ts'
import { type AttestedFetch, createAttestedFetch } from './attested-fetch.ts'
import type { AttestedFetchOptions } from './options.ts'
import { portableCrypto } from './portable-crypto.ts'
import { createWebTransport } from './web-transport.ts'

export * from './public.ts'

/**
 * Creates a `fetch` that only accepts one attested gateway. Throws OptionError. Sends nothing before the first call.
 */
export function attestedFetch(options: AttestedFetchOptions): AttestedFetch {
  return createAttestedFetch(options, {
    createTransport: createWebTransport,
    clock: systemClock,
    random: systemRandom,
    crypto: portableCrypto,
  })
}
