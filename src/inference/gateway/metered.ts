// The routes that ask upstreams, for every process that serves clients. Effects: those of the requests; child processes
// that check schemas.

import type { RandomBytes } from '../../base/ids.ts'
import { createObfuscate } from '../openai/obfuscation.ts'
import { createSchemaChecks } from '../schema-check/service.ts'
import { shapeOf } from '../shapes/shapes.ts'
import type { Operation } from '../types.ts'
import { type CompletionDeps, createCompletionHandler, type MeteredHandler } from './completion.ts'
import { createEmbeddingsHandler } from './embeddings.ts'
import type { Route } from './routes.ts'

export type MeteredRoutesDeps = Omit<CompletionDeps, 'schemas' | 'obfuscate'> & { readonly random: RandomBytes }

export type MeteredRoutes = {
  readonly routes: readonly (readonly [template: string, Route])[]
  readonly close: () => void
}

export function createMeteredRoutes(deps: MeteredRoutesDeps): MeteredRoutes {
  const { clock, deadlines, log, random } = deps
  const schemas = createSchemaChecks({ clock, deadlines, log })
  const complete = createCompletionHandler({ ...deps, schemas, obfuscate: createObfuscate(random) })
  const embed = createEmbeddingsHandler(deps)
  return {
    routes: [
      ['/v1/chat/completions', post('chat', complete)],
      ['/v1/completions', post('text_completion', complete)],
      ['/v1/responses', post('responses', complete)],
      ['/v1/messages', post('messages', complete)],
      ['/v1/embeddings', post('embeddings', embed)],
    ],
    close: () => schemas.close(),
  }
}

function post<Asked extends Operation>(operation: Asked, handle: MeteredHandler<Asked>): Route {
  return {
    methods: ['POST'],
    isPublic: false,
    shape: shapeOf(operation),
    respond: (request, received) => handle(request, { operation, ...received }),
  }
}

/** Secret salt of the upstream's prompt cache per organization: response times must not reveal others' prompts. */
export function createCacheSalt(secret: Uint8Array): (organizationId: string) => string {
  return organizationId => new Bun.CryptoHasher('sha256', secret).update(organizationId).digest('base64url')
}
