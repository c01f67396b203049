// Trust anchors of this host for evidence of guests. Effects: opens the simulated platform where that is needed.

import { AMD_ROOTS } from '../attest/amd/roots.ts'
import type { Platform } from '../config/schema.ts'
import type { SimulatedHost } from '../host/simulated-host.ts'
import type { AttestationTrustOf } from '../instances/evidence.verify.ts'

export type TrustParts = {
  readonly platform: Platform
  readonly simulatedPlatform: () => Promise<Pick<SimulatedHost, 'root'>>
  /** SHA-384 of every ID key that the operator has had on this host. */
  readonly operatorKeys: readonly Uint8Array[]
}

/**
 * On snp AMD's roots only, elsewhere only the simulated root of this host. `of`: platform the VM was made on, if it
 * differs from today's: VMs outlive a change of configuration.
 */
export function createTrust({ platform, simulatedPlatform, operatorKeys }: TrustParts): AttestationTrustOf {
  return async (of = platform) => {
    if (of === 'snp') return { roots: AMD_ROOTS, simulated: false, operatorKeys }
    const { root } = await simulatedPlatform()
    return { roots: [root], simulated: true, operatorKeys }
  }
}
