// Whom this host believes when a guest proves what it is. Effects: opens the simulated platform where that is needed.

import { AMD_ROOTS } from '../attest/amd/roots.ts'
import { Fault } from '../base/fault.ts'
import type { Platform } from '../config/schema.ts'
import type { SimulatedHost } from '../host/simulated-host.ts'
import type { AttestationTrustOf } from '../instances/evidence.verify.ts'

export type TrustParts = {
  readonly platform: Platform
  readonly simulatedPlatform: () => Promise<Pick<SimulatedHost, 'root' | 'operatorKey'>>
  /** SHA-384 of the operator's ID key; null where only the simulated platform has one. */
  readonly operatorKey: Uint8Array | null
}

/**
 * AMD's roots on snp, and there no other; elsewhere the simulated root of this host, and no other. `of`: the platform that a VM was made on,
 * where it is not of today: VMs outlive a change of the configuration.
 */
export function createTrust({ platform, simulatedPlatform, operatorKey }: TrustParts): AttestationTrustOf {
  return async (of = platform) => {
    if (of === 'snp') {
      if (operatorKey === null) throw new Fault('attest.unavailable', 'this host has no operator key')
      return { roots: AMD_ROOTS, simulated: false, operatorKey }
    }
    const simulated = await simulatedPlatform()
    return { roots: [simulated.root], simulated: true, operatorKey: operatorKey ?? simulated.operatorKey }
  }
}
