// The models that the configured gateway serves, as the rules of keys see them. Pure.

import { hasWorker } from '../config/checks/worker.ts'
import type { Config } from '../config/schema.ts'
import { type OfferedModels, offeredModels } from '../contract/key-rules.ts'

/** What the gateway will serve; the built-in worker is what its attestation covers. */
export function configuredModels({ inference: { worker, upstreams } }: Pick<Config, 'inference'>): OfferedModels {
  const inside = hasWorker(worker) ? [{ models: [worker.model], isInside: true }] : []
  return offeredModels([...inside, ...upstreams.map(({ models }) => ({ models, isInside: false }))])
}
