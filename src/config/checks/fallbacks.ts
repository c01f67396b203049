// Checks of `inference.fallbacks`. Pure.

import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'
import { hasWorker } from './worker.ts'

/** A fallback is between two models that make completions, one for each model, and never out of the measured VM. */
export function fallbackProblems({ inference }: Config): CrossProblem[] {
  const { fallbacks, upstreams, worker } = inference
  const outside = new Set(upstreams.flatMap(upstream => upstream.models))
  const embedding = new Set(upstreams.flatMap(upstream => upstream.embedding_models))
  const inside = hasWorker(worker) && !outside.has(worker.model) ? worker.model : null
  const problemOf = (model: string) => {
    if (model !== inside && !outside.has(model)) return `${JSON.stringify(model)} is no model of this gateway`
    return embedding.has(model) ? `${JSON.stringify(model)} makes embeddings, which no other model replaces` : null
  }
  return fallbacks.flatMap(({ model, fallback }, index) => {
    const isTwice = fallbacks.findIndex(other => other.model === model) !== index
    const message =
      problemOf(model) ??
      problemOf(fallback) ??
      (isTwice ? `${JSON.stringify(model)} has a fallback already` : null) ??
      (model === fallback ? `${JSON.stringify(model)} is its own fallback` : null) ??
      (model === inside ? `${JSON.stringify(model)} is answered in the measured VM; its fallback is not` : null)
    return message === null ? [] : [{ field: `inference.fallbacks.${index}`, message }]
  })
}
