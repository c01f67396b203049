// The five endpoints of service A (contract 4.1): parse, one call, status. What they return becomes `data` of the envelope.

import { Elysia } from 'elysia'
import { parseCreate, parseIdempotencyKey } from '../create.codec.ts'
import type { InstancesService, Principal } from '../service.ts'
import { JsonText } from './envelope.ts'

/** What the HTTP server does for routes. */
export type Edge = {
  /** Who sent this, from its headers alone. Faults: unauthenticated, forbidden. */
  readonly caller: (request: Request, need: 'read' | 'write') => Principal
  /** The body as strict JSON within all limits. Faults: invalid_request, body_too_large, body_timeout. */
  readonly json: (request: Request) => Promise<unknown>
}

export function instanceRoutes(service: InstancesService) {
  return (edge: Edge) =>
    new Elysia({ name: 'instances', normalize: false })
      .post(
        '/v1/instances',
        async ({ request, set }) => {
          const caller = edge.caller(request, 'write')
          const idempotencyKey = parseIdempotencyKey(request.headers.get('idempotency-key'))
          const wanted = parseCreate(await edge.json(request))
          set.status = 202
          return service.create(caller, wanted, idempotencyKey)
        },
        { parse: 'none' },
      )
      .get('/v1/instances', ({ request }) => new JsonText(service.list(edge.caller(request, 'read'))))
      .get('/v1/instances/:name', ({ request, params }) => service.retrieve(edge.caller(request, 'read'), params.name))
      .delete(
        '/v1/instances/:name',
        ({ request, params, set }) => {
          set.status = 202
          return service.remove(edge.caller(request, 'write'), params.name)
        },
        { parse: 'none' },
      )
      .get('/v1/usage', ({ request }) => service.usage(edge.caller(request, 'read')))
}
