// Sends a request to the expected gateway, checked by its evidence or, without evidence, by its certificate. Effects:
// the network.

import { systemClock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { systemRandom } from '../../base/ids.ts'
import { nativeAesGcm } from '../../linux/native-aes-gcm.ts'
import { nativeEncapsulation } from '../../linux/native-encapsulation.ts'
import { createAttestedFetch } from '../../verifier/fetch/attested-fetch.ts'
import { createNodeTransport } from '../../verifier/fetch/node-transport.ts'
import type { Sender } from './endpoint.ts'
import { attestedOptions, type Expectation, isAttested } from './expectation.codec.ts'
import { createUnattestedFetch } from './unattested.ts'

/** Opens no connection yet. Fault invalid_request: the expectation cannot be used. */
export function createSender(expectation: Expectation): Sender {
  const { baseUrl, gateway } = expectation
  if (gateway.kind === 'unattested') return createUnattestedFetch({ baseUrl, ca: gateway.ca })
  if (!isAttested(expectation)) throw new Fault('internal', 'invariant broken: a gateway is attested or it is not')
  const fetch = createAttestedFetch(attestedOptions(expectation), {
    createTransport: createNodeTransport,
    clock: systemClock,
    random: systemRandom,
    native: { newAesGcm: nativeAesGcm, primitives: nativeEncapsulation },
  })
  return { send: (url, init) => fetch(url, init), close: fetch.close }
}
