// GPUs of a gateway as an option of `verify gateway`: files of manifests and OCSP responses. Effects: reads files.

import { gpuNonce } from '../../../attest/nvidia/bound.ts'
import { verifyBoundGpus } from '../../../attest/nvidia/bound-verify.ts'
import { parseGpuPolicy } from '../../../attest/nvidia/policy.ts'
import type { JudgeGpus } from '../../../verifier/gpus.ts'
import type { Command } from '../../cli.ts'
import { MIB, readingInput, readJsonInput } from '../../input-file.ts'
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
      "manifest of a GPU's driver or VBIOS, as for `verify gpu`; repeat it. Without any, measurements are NOT CHECKED",
      collected,
    )
    .option('--gpu-ocsp <file>', 'OCSP response, DER, for GPUs and manifests; repeat it', collected)
    .option('--gpu-policy <file>', 'JSON as in `verify gpu-policy-schema`; default: the one in workload.json')
    .option('--trust-simulated-gpu-roots <file>', 'PEM of two simulated roots, of GPUs and of manifests')
}

export async function readJudgeGpus(options: BoundGpuOptions): Promise<JudgeGpus> {
  // Two libraries that are loaded for a gateway with GPUs alone, or for files that are named.
  const { readSignedXml } = await import('./signed-xml.ts')
  const rims = await readRimFiles(options.gpuRim)
  const ocsp = readOcspFiles(options.gpuOcsp)
  const roots = await readGpuRoots(options.trustSimulatedGpuRoots)
  const own = await readOwnPolicy(options.gpuPolicy)
  return ({ bytes, statement, required, asOfMs }) => {
    const { checks, simulated } = verifyBoundGpus({
      ...{ bytes, rims, ocsp, roots, readSignedXml, asOfMs },
      count: required.count,
      nonce: gpuNonce(statement),
      policy: own ?? parseGpuPolicy(required.policy),
    })
    return { checks, simulated }
  }
}

async function readOwnPolicy(path: string | undefined) {
  if (path === undefined) return null
  const document = readJsonInput({ path, param: 'gpu-policy', bytesMax: MIB })
  return await readingInput(`--gpu-policy ${path}`, () => parseGpuPolicy(document))
}
