// Context size of a model, from the configuration. Pure.

import { hasWorker } from './checks/worker.ts'
import type { Config } from './schema.ts'

/** Tokens of prompt and completion that every server of this model has room for; null if any or all are unknown. */
export function modelContextTokens(
  { inference, instances }: Pick<Config, 'inference' | 'instances'>,
  model: string,
): number | null {
  // Instances use another gateway, which may serve the same name by anything.
  if (instances.inference_base_url !== '') return null
  const { worker, upstreams } = inference
  const ofWorker = hasWorker(worker) && worker.model === model ? [worker.context_tokens] : []
  const sizes = [
    ...ofWorker,
    ...upstreams.filter(({ models }) => models.includes(model)).map(upstream => upstream.context_tokens),
  ]
  return sizes.length === 0 || sizes.includes(0) ? null : Math.min(...sizes)
}
