// Waits until changed gateway keys are in force wherever the gateway serves, before the command returns. Effects: waits
// for the gateway's VMs.

import { pause } from '../base/clock.ts'
import type { AdminDeps } from './deps.ts'

/** A VM that takes longer gets the keys as soon as possible. */
const waitMsMax = 2_000

/**
 * Waits so that afterwards a new key works at once, and a revoked key nowhere. On the host, the gateway reads keys from
 * the store.
 */
export async function putInForce({ gateway, clock }: Pick<AdminDeps, 'gateway' | 'clock'>): Promise<void> {
  if (gateway === 'host' || gateway === 'off') return
  const told = new AbortController()
  await Promise.race([gateway.pushControl(), pause(clock, waitMsMax, told.signal)])
  told.abort()
}
