// strongroom verify policy-example: prints a starting policy, or one for an image and operator. Effects: reads files.

import { defaultGpuPolicy } from '../../attest/nvidia/hgx/policy.ts'
import { encodePolicy } from '../../attest/policy/encode.ts'
import { policyWithFloors } from '../../attest/policy/floor-policy.ts'
import { encodeTdxPolicy, strictTdxPolicy } from '../../attest/tdx/encode-policy.ts'
import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { json } from '../../terminal/render.ts'
import { operatorKeyDigest } from '../trust/operator-key-digest.ts'
import { measurementsOf } from './config-pins.ts'
import { readImage } from './image-option.ts'

type ExampleOptions = { image?: string; operatorKey?: string; tdx?: boolean; gpu?: boolean }

export function addPolicyExample(verify: Command): void {
  verify
    .command('policy-example')
    .description(
      "print a policy: no debug, no migration, VMPL 0, AMD's floors; use it as it is with --image and --operator-key, or name values where it has 'any' (`strongroom help client`)",
    )
    .option('--image <path>', 'directory or manifest.json of an image: its launch digests are the measurements')
    .option('--operator-key <key>', 'file of `strongroom operator-key`, or its digest: the expected operator')
    .option('--tdx', 'for `verify tdx`: no debug, profiling, migration or service TD, and a TCB that is up to date')
    .option('--gpu', 'for `verify gpu`: any genuine GPU with fresh OCSP responses, and DevTools mode refused')
    .examples(
      'strongroom verify policy-example > policy.json',
      'strongroom verify policy-example --tdx > tdx.json',
      'strongroom verify policy-example --gpu > gpu-policy.json',
      'strongroom verify policy-example --image images/instance --operator-key operator-key.pub.pem > policy.json',
    )
    .runs(async (run, { image, operatorKey, tdx, gpu }: ExampleOptions) => {
      const hasImage = image !== undefined || operatorKey !== undefined
      if (tdx === true && hasImage) throw noTdxImage()
      if (gpu === true && (tdx === true || hasImage)) throw onlyGpu()
      const policy =
        gpu === true
          ? gpuExample()
          : tdx === true
            ? encodeTdxPolicy(strictTdxPolicy())
            : await policyFor({ image, operatorKey })
      await run.result(policy, json(policy))
    })
}

function noTdxImage(): InputFault {
  const remedy = 'leave them out, and write mrTds into the policy'
  return new InputFault('--tdx: images of this project and its operators are of SEV-SNP', { param: 'tdx', remedy })
}

/** Without `topology`, which `verify gateway --gpu-policy` does not take. */
function gpuExample() {
  const { topology: _, ...policy } = defaultGpuPolicy()
  return policy
}

function onlyGpu(): InputFault {
  const remedy = 'leave the others out'
  return new InputFault('--gpu goes with no other option: a policy for GPUs names no image', { param: 'gpu', remedy })
}

/** Returns a document with AMD's floors, the image's measurements and the operator key. Fault invalid_request. */
export async function policyFor({
  image,
  operatorKey,
}: {
  image: string | undefined
  operatorKey: string | undefined
}) {
  return encodePolicy({
    ...policyWithFloors(),
    measurements: measurementsOf(await readImage(image)),
    idKeyDigest: operatorKey === undefined ? 'any' : await operatorKeyDigest(operatorKey),
  })
}
