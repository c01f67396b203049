// A gateway with a workload.json of its own: upstreams outside of its VM, and settings that show more to its host.

import { workloadOf } from '../../../scripts/rigs/enclave/workload.ts'
import { allowlistText, type RigOptions, simulatedOrigin } from '../../../scripts/rigs/gateway/attestation.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { parseAllowlist } from '../../../src/contract/vm/allowlist.ts'
import { type GatewaySettings, type WorkloadUpstream, workloadText } from '../../../src/contract/vm/workload.ts'

export type OutsideGateway = Required<Pick<RigOptions, 'origin' | 'configurationDigest'>> & {
  /** Text of workload.json. */
  readonly workload: string
}

/** Its worker has the model `w`. */
export async function outsideGateway(
  upstreams: readonly Partial<WorkloadUpstream>[],
  gateway: Partial<GatewaySettings> = {},
): Promise<OutsideGateway> {
  const allowlist = parseAllowlist(utf8(allowlistText))
  if (!allowlist.ok) throw new Error('the allowlist of the rig cannot be read')
  const document = workloadOf({ controlKey: 'A'.repeat(43), upstreams, gateway })
  const workload = workloadText({ ...document, allowlist: allowlist.value })
  const digest = new Uint8Array(Bun.CryptoHasher.hash('sha256', workload))
  return { workload, origin: { ...(await simulatedOrigin()), hostData: digest }, configurationDigest: digest }
}
