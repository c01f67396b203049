// A gateway whose worker needs GPUs, with SIMULATED ones: its workload.json, and what its attestation is made of.

import { workloadOf } from '../../../scripts/rigs/enclave/workload.ts'
import { allowlistText, type RigOptions, simulatedOrigin } from '../../../scripts/rigs/gateway/attestation.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { parseAllowlist } from '../../../src/contract/vm/allowlist.ts'
import { type WorkloadGpus, workloadText } from '../../../src/contract/vm/workload.ts'
import { EnclaveGpus, nvidiaPrograms } from '../../../src/enclave/gpus.ts'
import { type Recorded, recordedPrograms } from '../attest/gpu/driver.ts'
import { policyDocument, type SimulatedGpu } from '../attest/gpu/simulated.ts'

/** Policy of workload.json: no OCSP age, for the responses of SIMULATED GPUs are of a fixed day. */
export const gpuPolicyText = JSON.stringify({ ...policyDocument(), ocspMaximumAgeSeconds: 'any', devtools: 'refuse' })

/** Null if its worker needs none. */
export function gpuWorkload(gpus: WorkloadGpus | null): string {
  const base = workloadOf({ controlKey: 'A'.repeat(43), upstreams: [], gateway: {} })
  const allowlist = parseAllowlist(utf8(allowlistText))
  if (!allowlist.ok || base.worker === null) throw new Error('the rig has an allowlist and a worker')
  const { worker } = base
  return workloadText({ ...base, allowlist: allowlist.value, worker: gpus === null ? worker : { ...worker, gpus } })
}

export type GpuGateway = Required<Pick<RigOptions, 'origin' | 'configurationDigest'>> &
  Pick<RigOptions, 'gpus'> & { readonly workload: string; readonly programs: Recorded }

/** `gpus`: those that the VM has, whatever workload.json requires. */
export async function gpuGateway(
  gpus: readonly SimulatedGpu[],
  required: WorkloadGpus | null = { count: gpus.length, policy: gpuPolicyText },
): Promise<GpuGateway> {
  const workload = gpuWorkload(required)
  const digest = new Uint8Array(Bun.CryptoHasher.hash('sha256', workload))
  const programs = recordedPrograms(gpus)
  const enclave = enclaveGpus(programs, { gpus, required })
  return {
    workload,
    programs,
    origin: { ...(await simulatedOrigin()), hostData: digest },
    configurationDigest: digest,
    ...(enclave === null ? {} : { gpus: nonce => enclave.evidence(nonce) }),
  }
}

function enclaveGpus(
  programs: Recorded,
  { gpus, required }: { readonly gpus: readonly SimulatedGpu[]; readonly required: WorkloadGpus | null },
): EnclaveGpus | null {
  if (required === null) return null
  return new EnclaveGpus(required, {
    driver: nvidiaPrograms((...given) => programs.run(...given)),
    roots: gpus.map(({ roots }) => roots),
    clock: { nowMs: Date.now },
    random: systemRandom,
  })
}
