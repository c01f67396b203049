// Keys of the gateway that have changed are in force where it serves before it is said that they have. Effects: waits for the gateway's VMs.

import { pause } from '../base/clock.ts'
import type { AdminDeps } from './deps.ts'

/** A VM that cannot be told by then is told as soon as it can be. */
const waitMsMax = 2_000

/** Whoever has the answer may use the key at once, or knows that nobody can. On the host the gateway reads each key from the store. */
export async function putInForce({ gateway, clock }: Pick<AdminDeps, 'gateway' | 'clock'>): Promise<void> {
  if (gateway === 'host' || gateway === 'off') return
  const told = new AbortController()
  await Promise.race([gateway.pushControl(), pause(clock, waitMsMax, told.signal)])
  told.abort()
}
