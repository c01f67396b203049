// Whether there is a built-in worker, and whether what it serves is named. Pure.

import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

type WorkerConfig = Config['inference']['worker']

export function hasWorker({ model_file, model_disk }: Pick<WorkerConfig, 'model_file' | 'model_disk'>): boolean {
  return model_file !== '' || model_disk !== ''
}

/** Models that the gateway serves, inside its VM and by upstreams. */
export function servedModels({ inference: { worker, upstreams } }: Pick<Config, 'inference'>): Set<string> {
  return new Set([...(hasWorker(worker) ? [worker.model] : []), ...upstreams.flatMap(({ models }) => models)])
}

/** A GPU is used only by a measured VM of SEV-SNP: elsewhere nothing would attest its computation. */
export function gpuProblems({ platform, inference }: Pick<Config, 'platform' | 'inference'>): CrossProblem[] {
  const { gpu, gpu_policy: policy } = inference.worker
  const problem = (field: string, message: string) => [{ field: `inference.worker.${field}`, message }]
  if (gpu.length === 0) return policy === '' ? [] : problem('gpu_policy', 'needs gpu, the GPUs that it is for')
  const twice = gpu.findIndex((address, at) => gpu.indexOf(address) !== at)
  return [
    ...(twice === -1 ? [] : problem(`gpu.${twice}`, `${gpu[twice]} stands here twice`)),
    ...(policy === '' ? problem('gpu_policy', 'must name the policy that the GPUs have to meet') : []),
    ...(inference.placement === 'vm'
      ? []
      : problem('gpu', 'needs inference.placement = "vm": a GPU goes to a measured VM')),
    ...(hasWorker(inference.worker)
      ? []
      : problem('gpu', 'needs model_disk or model_file: GPUs are for the built-in worker')),
    ...(platform === 'auto' || platform === 'snp'
      ? []
      : problem('gpu', `needs platform "snp" or "auto", not "${platform}": on ${platform} no GPU vouches to anybody`)),
  ]
}

/** In a VM a model is a disk, which can be made of the file; on the host the worker reads the file itself. */
export function workerProblems(
  placement: 'vm' | 'host',
  { model_file, model_disk }: Pick<WorkerConfig, 'model_file' | 'model_disk'>,
): CrossProblem[] {
  if (placement === 'vm' || model_disk === '' || model_file !== '') return []
  const message = `must name the GGUF file of model_disk (${model_disk}): a gateway on the host serves the file`
  return [{ field: 'inference.worker.model_file', message }]
}
