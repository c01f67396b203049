// Sends a request to the expected gateway, checked by its evidence or, without evidence, by its certificate. Effects:
// the network.

import { Fault } from '../../base/fault.ts'
import type { Sender } from '../../verifier/fetch/endpoint/endpoint.ts'
import { createAttestedSender } from '../../verifier/fetch/node-sender.ts'
import { attestedOptions, type Expectation, isAttested } from './expectation.codec.ts'
import { createUnattestedFetch } from './unattested.ts'

/** Opens no connection yet. Fault invalid_request: the expectation cannot be used. */
export function createSender(expectation: Expectation): Sender {
  const { baseUrl, gateway } = expectation
  if (gateway.kind === 'unattested') return createUnattestedFetch({ baseUrl, ca: gateway.ca })
  if (!isAttested(expectation)) throw new Fault('internal', 'invariant broken: a gateway is attested or it is not')
  return createAttestedSender(attestedOptions(expectation))
}
