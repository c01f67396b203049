// Service A over HTTP: the shared edge with this service's authentication, limits and envelope. Effects: access log.

import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import type { AnonymousLogLimit } from '../../http/anonymous-log-limit.ts'
import { createEdge, type EdgeContext, type EdgeRoute, type JsonLimits, readJson } from '../../http/edge.ts'
import type { Joined } from '../../http/operations.ts'
import type { RequestRate } from '../../http/rate.ts'
import type { DirectoryStore } from '../../store/db.ts'
import type { Authenticate } from './auth.ts'
import { correlationHeaders, failureEnvelope, successResponse } from './envelope.ts'
import type { Edge, InstanceApi, InstanceHandler, InstancePeer } from './handler.ts'
import { INSTANCE_ROUTES } from './routes.ts'

export type HttpDeps = InstanceApi & {
  readonly log: Logger
  readonly clock: Clock
  readonly random: RandomBytes
  readonly strangers: Pick<AnonymousLogLimit, 'level'>
  readonly limits: JsonLimits
  readonly authenticate: Authenticate
  readonly rate: Pick<RequestRate, 'take'>
  readonly admitChange: () => void
  readonly directory: Pick<DirectoryStore, 'retryUnknownKey'>
  readonly routes?: readonly Joined<string, InstanceHandler>[]
  /** Routes of other services at the same address. */
  readonly others?: readonly EdgeRoute<InstancePeer>[]
  /** Served at /openapi.json without authentication. */
  readonly openapi: object
}

/** Handles a request. Never rejects: every request gets a response. */
export type HttpFetch = (request: Request, peer: InstancePeer) => Promise<Response>

export function createHttp(deps: HttpDeps): HttpFetch {
  const deadlines = createDeadlines(deps.clock)
  const caller = (context: InstancePeer & EdgeContext, need: 'read' | 'write') => {
    const principal = deps.authenticate(context.request.headers, need, context.principal)
    context.organization = principal.organization.slug
    deps.rate.take(principal.keyPrefix)
    return principal
  }
  const json = (request: Request) => readJson(request, deps.limits, deadlines)
  const { service, attestations, snapshots, peers, published, routes = INSTANCE_ROUTES } = deps
  const openapi = JSON.stringify(deps.openapi)
  const api: InstanceApi & Edge = {
    ...{ service, attestations, snapshots, peers, published },
    ...{ caller, json, openapi },
  }
  const own = routes.map(({ row: handle, ...place }) => ({
    ...place,
    respond: async (context: InstancePeer & EdgeContext) => {
      const handled = await deps.directory.retryUnknownKey(() => handle(api, context))
      return handled instanceof Response ? handled : successResponse(context, handled)
    },
  }))
  return createEdge<InstancePeer>({
    log: deps.log,
    clock: deps.clock,
    random: deps.random,
    admitChange: deps.admitChange,
    strangers: deps.strangers,
    routes: [...own, ...(deps.others ?? [])],
    failureDocument: failureEnvelope,
    headers: correlationHeaders,
    beforeMethods: context => void caller(context, 'read'),
  })
}
