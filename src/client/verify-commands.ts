// strongroom verify: judges evidence with the roots of AMD, Intel and NVIDIA and a policy. Only `gateway`, `instance`
// and --fetch use the network. Each command loads only its own code, because loading takes most of the time of
// a verdict. Effects: loads modules.

import { useHashes } from '../attest/hash.ts'
import { type AddCommand, type Loaders, loadNamed } from '../terminal/loading.ts'
import { nativeHashes } from './measure/native.ts'

/** Commands in the order of the help. */
const COMMANDS: Loaders = {
  report: async () => (await import('./verify/report.ts')).addVerifyReport,
  vtpm: async () => (await import('./verify/vtpm/vtpm.ts')).addVerifyVtpm,
  tdx: async () => (await import('./tdx/verify-tdx.ts')).addVerifyTdx,
  gpu: async () => (await import('./verify/gpu/gpu.ts')).addVerifyGpu,
  'id-block': async () => {
    const { addIdBlockCheck } = await import('./id-block/check.ts')
    return verify => addIdBlockCheck(verify, 'id-block')
  },
  gateway: async () => (await import('./verify/gateway.ts')).addVerifyGateway,
  response: async () => (await import('./verify/response.ts')).addVerifyResponse,
  instance: async () => (await import('./verify/instance.ts')).addVerifyInstance,
  build: async () => (await import('./verify/build/build.ts')).addVerifyBuild,
  policy: async () => (await import('./verify/policy-init.ts')).addPolicyInit,
  'policy-schema': async () => (await import('./verify/schemas.ts')).addPolicySchema,
  'tdx-policy-schema': async () => (await import('./verify/schemas.ts')).addTdxPolicySchema,
  'gpu-policy-schema': async () => (await import('./verify/gpu/policy-schema.ts')).addGpuPolicySchema,
  'policy-example': async () => (await import('./verify/policy-example.ts')).addPolicyExample,
  'verdict-schema': async () => (await import('./verify/schemas.ts')).addVerdictSchema,
  'tcb-floors': async () => (await import('./verify/schemas.ts')).addTcbFloors,
}

/** Loads the requested commands. `words`: the arguments after `verify`. */
export async function loadVerify(words: readonly string[]): Promise<AddCommand> {
  useHashes(nativeHashes)
  const commands = await loadNamed(COMMANDS, words)
  return program => {
    const verify = program
      .command('verify')
      .description(
        `verify evidence: ${Object.keys(COMMANDS).join(', ')}; needs no daemon; for a transparency log see \`strongroom log monitor\``,
      )
      .examples('strongroom verify report --report report.bin --vek vcek.pem --crl crl.der --policy policy.json')
    for (const add of commands) add(verify)
  }
}
