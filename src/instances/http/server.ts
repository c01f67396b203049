// Service A over HTTP: the shared edge with this service's authentication, limits and envelope. Effects: access log.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import type { AnonymousLogLimit } from '../../http/anonymous-log-limit.ts'
import { type JsonLimits, readJson } from '../../http/body.ts'
import { createEdge, type EdgeContext, type EdgeRoute } from '../../http/edge.ts'
import type { Joined } from '../../http/operations.ts'
import type { RequestRate } from '../../http/rate.ts'
import type { Authenticate } from './auth.ts'
import { correlationHeaders, failureEnvelope, successResponse } from './envelope.ts'
import { type Edge, INSTANCE_ROUTES, type InstanceApi, type InstanceHandler, type InstancePeer } from './routes.ts'

export type HttpDeps = InstanceApi & {
  readonly log: Logger
  readonly clock: Clock
  readonly random: RandomBytes
  readonly strangers: Pick<AnonymousLogLimit, 'level'>
  readonly limits: JsonLimits
  readonly authenticate: Authenticate
  readonly rate: Pick<RequestRate, 'take'>
  readonly admitChange: () => void
  /** In a fleet: fetches changes, such as a key that another host has just made. Null or absent on a single host. */
  readonly syncDirectory?: (() => Promise<boolean>) | null
  readonly routes?: readonly Joined<string, InstanceHandler>[]
  /** Routes of others at the same address. */
  readonly others?: readonly EdgeRoute<InstancePeer>[]
  /** Served at /openapi.json without authentication. */
  readonly openapi: object
}

/** Never rejects: every request gets a response. */
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
  const { service, attestations, peers = null, routes = INSTANCE_ROUTES } = deps
  const api: InstanceApi & Edge = { service, attestations, peers, caller, json, openapi: JSON.stringify(deps.openapi) }
  const own = routes.map(({ row: handle, ...place }) => ({
    ...place,
    respond: async (context: InstancePeer & EdgeContext) => {
      const handled = await retryAfterSync(() => handle(api, context), deps.syncDirectory ?? null)
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

/** An unknown key may be new: it is looked up again after a sync. Nothing was done until then. */
async function retryAfterSync<T>(handle: () => T | Promise<T>, fresh: (() => Promise<boolean>) | null): Promise<T> {
  if (fresh === null) return handle()
  try {
    return await handle()
  } catch (error) {
    const isUnknown = error instanceof Fault && error.code === 'unauthenticated'
    if (isUnknown && (await fresh())) return handle()
    throw error
  }
}
