// strongroom verify gpu-policy-schema.

import { gpuPolicySchema } from '../../../attest/nvidia/policy.ts'
import type { Command } from '../../../terminal/command.ts'
import { addSchema } from '../schemas.ts'

export function addGpuPolicySchema(verify: Command): void {
  addSchema(verify, 'gpu-policy', { of: 'the file that --policy of `verify gpu` takes', schema: gpuPolicySchema })
}
