// The endpoints of service A (contract 4.1, and the attestation of an instance): parse, one call, status. What they return becomes `data` of the envelope.

import { Elysia } from 'elysia'
import { readNonce } from '../attestation.codec.ts'
import type { Attestations } from '../attestation.ts'
import { parseCreate, parseIdempotencyKey } from '../create.codec.ts'
import type { InstancesService, Principal, Shown } from '../service.ts'
import { JsonText, Reply } from './envelope.ts'

/** What the HTTP server does for routes. */
export type Edge = {
  /** Who sent this, from its headers alone. Faults: unauthenticated, forbidden. */
  readonly caller: (request: Request, need: 'read' | 'write') => Principal
  /** The body as strict JSON within all limits. Faults: invalid_request, body_too_large, body_timeout. */
  readonly json: (request: Request) => Promise<unknown>
}

export function instanceRoutes(service: InstancesService, attestations: Pick<Attestations, 'show'>) {
  return (edge: Edge) =>
    new Elysia({ name: 'instances', normalize: false })
      .post(
        '/v1/instances',
        async ({ request, set }) => {
          const caller = edge.caller(request, 'write')
          const idempotencyKey = parseIdempotencyKey(request.headers.get('idempotency-key'))
          const wanted = parseCreate(await edge.json(request))
          set.status = 202
          return reply(service.create(caller, wanted, idempotencyKey))
        },
        { parse: 'none' },
      )
      .get('/v1/instances', async ({ request }) => {
        const { data, platforms } = await service.list(edge.caller(request, 'read'))
        return reply({ data: new JsonText(data), platforms })
      })
      .get('/v1/instances/:name', ({ request, params }) =>
        reply(service.retrieve(edge.caller(request, 'read'), params.name)),
      )
      .get('/v1/instances/:name/attestation', async ({ request, params }) => {
        const caller = edge.caller(request, 'read')
        return reply(await attestations.show(caller, params.name, readNonce(request.url)))
      })
      .delete(
        '/v1/instances/:name',
        ({ request, params, set }) => {
          set.status = 202
          return reply(service.remove(edge.caller(request, 'write'), params.name))
        },
        { parse: 'none' },
      )
      .get('/v1/usage', ({ request }) => service.usage(edge.caller(request, 'read')))
}

export const platformHeader = 'X-Strongroom-Platform'

/** With what the instances run on, such as `snp` or `tcg; simulated`: only on snp is a VM's memory kept from this host, all else simulates that. */
function reply({ data, platforms }: Shown<unknown>): Reply {
  const names = platforms.map(platform => {
    if (platform === null) return 'unknown'
    return platform === 'snp' ? platform : `${platform}; simulated`
  })
  return new Reply(data, names.length === 0 ? {} : { [platformHeader]: names.sort().join(', ') })
}
