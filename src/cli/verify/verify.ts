// strongroom verify: evidence against the roots of AMD, Intel and NVIDIA and a policy. Only `gateway`, `instance` and
// `report --fetch` use the network. Each command loads its own code alone: most of the time of a verdict is that of
// loading. Effects: loads modules.

import { useHashes } from '../../attest/hash.ts'
import { type AddCommand, type Loaders, loadNamed } from '../loading.ts'
import { nativeHashes } from '../measure/native.ts'

/** In the order of the help. */
const COMMANDS: Loaders = {
  report: async () => (await import('./report.ts')).addVerifyReport,
  vtpm: async () => (await import('./vtpm/vtpm.ts')).addVerifyVtpm,
  tdx: async () => (await import('../tdx/verify-tdx.ts')).addVerifyTdx,
  gpu: async () => (await import('./gpu/gpu.ts')).addVerifyGpu,
  'id-block': async () => {
    const { addIdBlockCheck } = await import('../id-block/check.ts')
    return verify => addIdBlockCheck(verify, 'id-block')
  },
  gateway: async () => (await import('./gateway.ts')).addVerifyGateway,
  response: async () => (await import('./response.ts')).addVerifyResponse,
  instance: async () => (await import('./instance.ts')).addVerifyInstance,
  build: async () => (await import('./build/build.ts')).addVerifyBuild,
  'policy-schema': async () => (await import('./schemas.ts')).addPolicySchema,
  'tdx-policy-schema': async () => (await import('./schemas.ts')).addTdxPolicySchema,
  'gpu-policy-schema': async () => (await import('./gpu/policy-schema.ts')).addGpuPolicySchema,
  'policy-example': async () => (await import('./policy-example.ts')).addPolicyExample,
  'verdict-schema': async () => (await import('./schemas.ts')).addVerdictSchema,
  'tcb-floors': async () => (await import('./schemas.ts')).addTcbFloors,
}

/** `words`: what follows `verify` on the command line. */
export async function loadVerify(words: readonly string[]): Promise<AddCommand> {
  useHashes(nativeHashes)
  const commands = await loadNamed(COMMANDS, words)
  return program => {
    const verify = program
      .command('verify')
      .description(`verify evidence: ${Object.keys(COMMANDS).join(', ')}; needs no daemon`)
      .examples('strongroom verify report --report report.bin --vek vcek.pem --crl crl.der --policy policy.json')
    for (const add of commands) add(verify)
  }
}
