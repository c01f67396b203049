// Whether every model has one use, wherever it is served: completions or embeddings; and whether the servers that
// have no chats are named by their roots. Pure.

import type { Config } from '../schema.ts'
import type { CrossProblem } from './builds.ts'
import { hasWorker } from './worker.ts'

export function embeddingProblems({ inference, instances }: Pick<Config, 'inference' | 'instances'>): CrossProblem[] {
  const { upstreams, worker } = inference
  const marked = new Set(upstreams.flatMap(upstream => upstream.embedding_models))
  const ofUpstreams = upstreams.flatMap(({ models, embedding_models, engine, url }, at) => {
    const field = `inference.upstreams.${at}.embedding_models`
    const hasNoChats = engine === 'text-embeddings-inference'
    return [
      ...(hasNoChats && url.endsWith('/v1')
        ? [{ field: `inference.upstreams.${at}.url`, message: 'must be the root of the server, without /v1' }]
        : []),
      ...models
        .filter(model => hasNoChats && !embedding_models.includes(model))
        .map(model => ({ field, message: `lacks ${JSON.stringify(model)}: this engine has no chats` })),
      ...embedding_models
        .filter(model => !models.includes(model))
        .map(model => ({ field, message: `${JSON.stringify(model)} is not among the models of this upstream` })),
      ...models
        .filter(model => marked.has(model) && !embedding_models.includes(model))
        .map(model => {
          const message = `lacks ${JSON.stringify(model)}, which is an embedding model of another upstream; a model has one use`
          return { field, message }
        }),
    ]
  })
  const isWorkers = hasWorker(worker) && marked.has(worker.model)
  const offered = instances.inference_models.findIndex(model => marked.has(model))
  return [
    ...ofUpstreams,
    ...(isWorkers
      ? [{ field: 'inference.worker.model', message: `"${worker.model}" is an embedding model of an upstream` }]
      : []),
    ...(offered === -1
      ? []
      : [
          {
            field: `instances.inference_models.${offered}`,
            message: 'is an embedding model; agents need one for chats',
          },
        ]),
  ]
}
