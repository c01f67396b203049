// The routes that call upstreams, for every process that serves clients. Effects: those of the requests; child
// processes that check schemas.

import { createTickBatch } from '../../base/work/tick-batch.ts'
import { dialectOf } from '../dialects/dialects.ts'
import { BodyRoom } from '../limits/body-room.ts'
import { createObfuscate } from '../openai/obfuscation.ts'
import { type StartSchemaProcess, startOwnSchemaProcess } from '../schema-check/child.ts'
import { createSchemaChecks } from '../schema-check/service.ts'
import type { CountOperation, Operation, PooledOperation } from '../types.ts'
import { createDecodeBody } from './bodies/coding.ts'
import { createLargeBodies } from './bodies/large-bodies.ts'
import type { AskedCompletion } from './bodies/read-body.ts'
import { type CompletionDeps, createCompletionHandler, type MeteredHandler } from './completion.ts'
import { createCountHandler } from './count-tokens.ts'
import { createEmbeddingsHandler } from './embeddings.ts'
import type { CacheSalt } from './failover.ts'
import { type Handler, type HandlerTable, type Route, routesOf } from './routes.ts'

export type MeteredRoutesDeps = Omit<
  CompletionDeps,
  'schemas' | 'obfuscate' | 'bodyRoom' | 'largeBodies' | 'decodeBody' | 'bodyBatch' | 'responseBatch'
> & {
  /** Default: as a child of this process. */
  readonly startSchemaProcess?: StartSchemaProcess
}

export type MeteredRoutes = {
  readonly routes: readonly (readonly [template: string, Route])[]
  readonly close: () => void
}

export function createMeteredRoutes(given: MeteredRoutesDeps): MeteredRoutes {
  const { startSchemaProcess: startProcess = startOwnSchemaProcess, clock, deadlines, log, random } = given
  const largeBodies = createLargeBodies({ clock, random, log })
  const deps = {
    ...given,
    largeBodies,
    decodeBody: createDecodeBody(),
    bodyRoom: new BodyRoom(given.limits.bodyBytesMax),
    // Not shared: each batch has a different next step.
    bodyBatch: createTickBatch(),
    responseBatch: createTickBatch(),
  }
  const schemas = createSchemaChecks({ startProcess, clock, deadlines, log, random })
  const complete = createCompletionHandler({ ...deps, schemas, obfuscate: createObfuscate(random) })
  const embed = createEmbeddingsHandler(deps)
  const count = createCountHandler(deps)
  const close = () => {
    schemas.close()
    largeBodies.close()
  }
  return { routes: routesOf(METERED, { complete, count, embed }), close }
}

type Handlers = {
  readonly complete: MeteredHandler<AskedCompletion>
  readonly count: MeteredHandler<CountOperation>
  readonly embed: MeteredHandler<PooledOperation>
}

export const METERED = {
  createChatCompletion: ({ complete }: Handlers) => handlerOf('chat', complete),
  createCompletion: ({ complete }: Handlers) => handlerOf('text_completion', complete),
  createResponse: ({ complete }: Handlers) => handlerOf('responses', complete),
  compactResponse: ({ complete }: Handlers) => handlerOf('compact', complete),
  createMessage: ({ complete }: Handlers) => handlerOf('messages', complete),
  countMessageTokens: ({ count }: Handlers) => handlerOf('count_tokens', count),
  countInputTokens: ({ count }: Handlers) => handlerOf('input_tokens', count),
  createEmbeddings: ({ embed }: Handlers) => handlerOf('embeddings', embed),
  rerank: ({ embed }: Handlers) => handlerOf('rerank', embed),
} as const satisfies HandlerTable<Handlers>

function handlerOf<Asked extends Operation>(operation: Asked, handle: MeteredHandler<Asked>): Handler {
  return {
    dialect: dialectOf(operation),
    respond: (request, { id, exchange }) => handle(request, { operation, id, exchange }),
  }
}

/** Keys the salt with a secret of this gateway, so that an upstream learns neither the digest nor the client's salt. */
export function createCacheSalt(secret: Uint8Array): CacheSalt {
  // All owners have the same length, and no client's salt is empty.
  return (owner, ofClient) =>
    new Bun.CryptoHasher('sha256', secret)
      .update(owner)
      .update(ofClient ?? '')
      .digest('base64url')
}
