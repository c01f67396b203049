// The package's entry for pages and their workers: no key of a connection can be seen there, and what protects is the
// encryption to the attested key. Effects: the network.

import { systemClock } from '../../base/clock.ts'
import { systemRandom } from '../../base/ids.ts'
import { type AttestedFetch, createAttestedFetch } from './attested-fetch.ts'
import type { AttestedFetchOptions } from './options.ts'
import { portableCrypto } from './portable-crypto.ts'
import { createWebTransport } from './web-transport.ts'

export * from './public.ts'

/** A `fetch` for one attested gateway alone. Throws OptionError; nothing is sent before the first call. */
export function attestedFetch(options: AttestedFetchOptions): AttestedFetch {
  return createAttestedFetch(options, {
    createTransport: createWebTransport,
    clock: systemClock,
    random: systemRandom,
    crypto: portableCrypto,
  })
}
