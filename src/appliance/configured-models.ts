// The models that the configured gateway serves, as the rules of keys see them. Pure.

import { hasWorker } from '../config/checks/worker.ts'
import type { Config } from '../config/schema.ts'
import { type OfferedModels, offeredModels } from '../contract/key-rules.ts'

/** Models without a price: budgets in dollars do not count their requests. Sorted. */
export function unpricedModels({ inference, listen }: Pick<Config, 'inference' | 'listen'>): string[] {
  if (listen.inference === '') return []
  const priced = new Set(inference.prices.map(({ model }) => model))
  return [...configuredModels({ inference }).served.difference(priced)].toSorted()
}

/** Models that the gateway serves. Its attestation covers the built-in worker. */
export function configuredModels({ inference: { worker, upstreams } }: Pick<Config, 'inference'>): OfferedModels {
  const inside = hasWorker(worker) ? [{ models: [worker.model], isInside: true }] : []
  return offeredModels([...inside, ...upstreams.map(({ models }) => ({ models, isInside: false }))])
}
