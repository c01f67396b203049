// The handlers of service A. Each parses its request and makes one call, whose result becomes the envelope's `data`.

import { resultOr } from '../../base/result-or.ts'
import { principalOf } from '../../contract/http/forwarded-principal.ts'
import type { EdgeContext } from '../../http/edge.ts'
import { joined } from '../../http/operations.ts'
import { readNonce } from '../attestation.codec.ts'
import { parseCreate, parseIdempotencyKey } from '../create.codec.ts'
import type { RecordView } from '../service.ts'
import { JsonData, Reply } from './envelope.ts'
import type { InstanceHandler } from './handler.ts'
import { INSTANCE_OPERATIONS, type InstanceOperation } from './operations.ts'
import { SNAPSHOT_HANDLERS } from './snapshot-routes.ts'

/** Any page may read it. */
const everybody = { 'Access-Control-Allow-Origin': '*' }
const json = { 'Content-Type': 'application/json' }

const HANDLERS: Readonly<Record<InstanceOperation, InstanceHandler>> = {
  createInstance: async ({ service, caller: callerOf, json }, context) => {
    const caller = callerOf(context, 'write')
    const idempotencyKey = parseIdempotencyKey(context.request.headers.get('idempotency-key'))
    const wanted = parseCreate(await json(context.request))
    return reply(await service.create(caller, wanted, idempotencyKey), 202)
  },
  listInstances: async ({ service, caller }, context) => {
    const { data, platforms } = await service.list(caller(context, 'read'))
    return reply({ data: new JsonData(data), platforms })
  },
  retrieveInstance: async ({ service, caller }, context) =>
    reply(await service.retrieve(caller(context, 'read'), nameOf(context))),
  retrieveInstanceAttestation: async ({ attestations, peers, caller }, context) => {
    const by = caller(context, 'read')
    const shown = await attestations.show(by, nameOf(context), readNonce(context.request.url))
    if ('data' in shown) return reply(shown)
    const { otherHostId } = shown
    return await peers.forward(otherHostId, context.request, {
      service: 'instances',
      clientAddress: context.address(),
      principal: principalOf({ organizationId: by.organization.id, keyPrefix: by.keyPrefix }, context.request.method),
    })
  },
  deleteInstance: async ({ service, caller }, context) =>
    reply(await service.remove(caller(context, 'write'), nameOf(context)), 202),
  ...SNAPSHOT_HANDLERS,
  retrieveUsage: async ({ service, caller }, context) => new Reply(await service.usage(caller(context, 'read'))),
  retrievePublished: ({ published }) => new Response(published(), { headers: { ...everybody, ...json } }),
  retrieveOpenapi: ({ openapi }) => new Response(openapi, { headers: json }),
}

export const INSTANCE_ROUTES = joined(INSTANCE_OPERATIONS, HANDLERS)

export const platformHeader = 'X-Strongroom-Platform'

/**
 * Names the platforms of instances, such as `snp` or `tcg; simulated`: only SEV-SNP protects a VM's memory from this
 * host, and every other platform simulates that.
 */
function reply({ data, platforms }: RecordView<unknown>, status = 200): Reply {
  const names = platforms.map(platform => {
    if (platform === null) return 'unknown'
    return platform === 'snp' ? platform : `${platform}; simulated`
  })
  return new Reply(data, { status, headers: names.length === 0 ? {} : { [platformHeader]: names.sort().join(', ') } })
}

/** Decodes the name. Malformed percent-encoding is returned unchanged, and names no instance. */
function nameOf({ params: { name = '' } }: EdgeContext): string {
  return resultOr(() => decodeURIComponent(name), name)
}
