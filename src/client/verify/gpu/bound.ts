// Options of `verify gateway` for a gateway's GPUs: files of manifests and OCSP responses. Effects: reads files.

import { gpuNonce } from '../../../attest/nvidia/bound.ts'
import { verifyBoundGpus } from '../../../attest/nvidia/bound-verify.ts'
import { parseGpuPolicy } from '../../../attest/nvidia/policy.ts'
import { type Check, fail, type Verdict } from '../../../attest/verdict.ts'
import type { Command } from '../../../terminal/command.ts'
import { MIB, readingInput, readJsonInput } from '../../../terminal/input-file.ts'
import { gpuRequiredName, type JudgeGpus } from '../../../verifier/gpus.ts'
import { gpuPinName } from '../../verdict/summary.ts'
import { collected } from './gpu.ts'
import { readGpuRoots, readOcspFiles, readRimFiles } from './inputs.ts'

export type BoundGpuOptions = {
  gpuRim?: readonly string[]
  gpuOcsp?: readonly string[]
  gpuPolicy?: string
  trustSimulatedGpuRoots?: string
}

export function addBoundGpuOptions(command: Command): Command {
  return command
    .option(
      '--gpu-rim <file>',
      "manifest of a GPU's driver or VBIOS, as for `verify gpu`; repeatable. Without any, measurements are NOT CHECKED",
      collected,
    )
    .option('--gpu-ocsp <file>', 'OCSP response, DER, for GPUs and manifests; repeatable', collected)
    .option(
      '--gpu-policy <file>',
      'JSON as in `verify gpu-policy-schema`, without `topology`; default: the one in workload.json',
    )
    .option('--trust-simulated-gpu-roots <file>', 'PEM of two simulated roots, of GPUs and of manifests')
}

export async function readJudgeGpus(options: BoundGpuOptions): Promise<JudgeGpus> {
  // Load these two libraries only for a gateway with GPUs, or if files are given.
  const { readSignedXml } = await import('./signed-xml.ts')
  const rims = await readRimFiles({ paths: options.gpuRim, param: 'gpu-rim' })
  const ocsp = readOcspFiles({ paths: options.gpuOcsp, param: 'gpu-ocsp' })
  const roots = await readGpuRoots(options.trustSimulatedGpuRoots, 'trust-simulated-gpu-roots')
  const own = await readOwnPolicy(options.gpuPolicy)
  return ({ bytes, statement, required, asOfMs }) => {
    return verifyBoundGpus({
      ...{ bytes, rims, ocsp, roots, readSignedXml, asOfMs },
      count: required.count,
      nonce: gpuNonce(statement),
      policy: own ?? parseGpuPolicy(required.policy),
    })
  }
}

/** Fails if a GPU policy or GPU files are given for a gateway without GPUs. */
export function expectedGpuChecks(options: BoundGpuOptions, found: Pick<Verdict, 'checks'>): Check[] {
  const { gpuPolicy, gpuRim, gpuOcsp } = options
  const isExpected = gpuPolicy !== undefined || gpuRim !== undefined || gpuOcsp !== undefined
  if (!isExpected || found.checks.some(({ name }) => name === gpuRequiredName)) return []
  return [fail(gpuPinName, 'neither workload.json nor receipt speaks of a GPU, and you named files for some')]
}

async function readOwnPolicy(path: string | undefined) {
  if (path === undefined) return null
  const document = readJsonInput({ path, param: 'gpu-policy', bytesMax: MIB })
  return await readingInput(`--gpu-policy ${path}`, () => parseGpuPolicy(document))
}
