// strongroom verify gpu-policy-schema: prints the schema of GPU policies.

import { gpuPolicySchema } from '../../../attest/nvidia/hgx/policy.ts'
import type { Command } from '../../../terminal/command.ts'
import { addSchema } from '../schemas.ts'

export function addGpuPolicySchema(verify: Command): void {
  addSchema(verify, 'gpu-policy', { of: 'the file that --policy of `verify gpu` takes', schema: gpuPolicySchema })
}
