// Shares of keys' limits that this VM's host leases from its fleet. Effects: calls the host.
//
// The host decides how much of a key's limits is served here, never that more than the key's own limits is: the limiter
// holds both. How long a share is good counts from before the question, by this VM's clock.

import { checked } from '../contract/check.ts'
import { ShareAnswer, sharesOfMessageMax } from '../contract/vm/shares.ts'
import type { KeySharesDeps } from '../inference/limits/key-shares.ts'
import type { Control } from './control.ts'
import type { HostRequests } from './host-requests.ts'

const askTimeoutMs = 3_000

export function sharesOver(
  hostRequests: Pick<HostRequests, 'ask'>,
  control: Pick<Control, 'isShared'>,
): Pick<KeySharesDeps, 'renew' | 'isShared' | 'keysPerAskMax'> {
  return {
    isShared: () => control.isShared,
    keysPerAskMax: sharesOfMessageMax,
    renew: async (turn, asks) => {
      const answer = await hostRequests.ask({ kind: 'shares', turn, asks: [...asks] }, askTimeoutMs)
      return checked(ShareAnswer, answer, { what: 'shares of the host', code: 'internal' })
    },
  }
}
