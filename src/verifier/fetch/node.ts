// The package's entry for Bun and Node: every connection is held to the attested TLS key, and bodies are encrypted to the attested key. Effects: the network.

import { systemClock } from '../../base/clock.ts'
import { systemRandom } from '../../base/ids.ts'
import { type AttestedFetch, createAttestedFetch } from './attested-fetch.ts'
import { createNodeTransport } from './node-transport.ts'
import type { AttestedFetchOptions } from './options.ts'

export * from './public.ts'

/** A `fetch` that speaks with one attested gateway and nobody else. Throws OptionError; nothing is sent before the first call. */
export function attestedFetch(options: AttestedFetchOptions): AttestedFetch {
  return createAttestedFetch(options, {
    createTransport: createNodeTransport,
    clock: systemClock,
    random: systemRandom,
  })
}
