// The policy that GPUs of the worker must meet, as configured. Effects: reads a file.

import { readFileSync } from 'node:fs'
import { parsed } from '../../attest/malformed.ts'
import { type GpuPolicy, parseGpuPolicy } from '../../attest/nvidia/policy.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Config } from '../../config/schema.ts'
import type { WorkloadGpus } from '../../contract/vm/workload.ts'

const param = 'inference.worker.gpu_policy'
const fileCharsMax = 65_536

/**
 * Loads the GPUs and their policy; null if no GPU is configured. Faults: config.file; config.invalid (no policy for
 * GPUs).
 */
export function loadGpus({ gpu, gpu_policy: path }: Config['inference']['worker']): WorkloadGpus | null {
  if (gpu.length === 0) return null
  const policy = readPolicy(path)
  readGpuPolicyText(policy)
  return { count: gpu.length, policy }
}

/** Parses the policy. Throws Fault config.invalid. */
export function readGpuPolicyText(text: string): GpuPolicy {
  const read = parsed(() => parseGpuPolicy(text))
  if (!read.ok) throw new Fault('config.invalid', `${param}: ${read.reason}`, { param })
  return read.value
}

function readPolicy(path: string): string {
  try {
    const text = readFileSync(path, 'utf8')
    if (text.length > fileCharsMax) throw new Error(`${text.length} characters, at most ${fileCharsMax}`)
    return text
  } catch (error) {
    throw new Fault('config.file', `${param}: ${messageOf(error)}`, { param, cause: error })
  }
}
