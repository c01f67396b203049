// Whether there is a built-in worker, and whether what it serves is named. Pure.

import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'

type WorkerConfig = Config['inference']['worker']

export function hasWorker({ model_file, model_disk }: Pick<WorkerConfig, 'model_file' | 'model_disk'>): boolean {
  return model_file !== '' || model_disk !== ''
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
