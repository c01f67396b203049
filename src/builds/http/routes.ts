// The handlers of service C (contract 4.3). Each parses its request and makes one call. Effects: those of the service.

import { iso } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { newUuid } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { Runtime } from '../../base/runtime.ts'
import { createDeadlines, type Deadlines } from '../../base/work/deadlines.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import type { BuildAccepted, BuildProblem, BuildVmReserved } from '../../contract/http/build-api.ts'
import { type ForwardedPrincipal, principalOf } from '../../contract/http/forwarded-principal.ts'
import type { AnonymousLogLimit } from '../../http/anonymous-log-limit.ts'
import { createEdge, type EdgeContext, type EdgeFetch, type EdgeRoute } from '../../http/edge.ts'
import { LimitedFault, UnavailableFault } from '../../http/limited.ts'
import { joined } from '../../http/operations.ts'
import { removeFile } from '../../linux/files/removal.ts'
import type { DirectoryStore } from '../../store/db.ts'
import type { Build } from '../../store/directory/build.table.ts'
import type { EventLogs } from '../events/events.ts'
import { FleetReader } from '../events/fleet-reader.ts'
import { type BuildFiles, fileExists } from '../files.ts'
import type { BuildPeers } from '../fleet.ts'
import { type RecordContext, toBuildRecord } from '../record.ts'
import { parseBuildRequest, type RequestRules } from '../request.codec.ts'
import type { BuildsService } from '../service.ts'
import { ownersOf, PARTS } from '../shares.plan.ts'
import type { Caller } from '../types.ts'
import { readSourceBody, type SourceBodyLimits } from './body.ts'
import { eventStream, startOf } from './event-stream.ts'
import type { ForwardWhenFull } from './forward-when-full.ts'
import { atVm, BUILD_OPERATIONS, type BuildOperation } from './operations.ts'
import { resultResponse } from './result-response.ts'

/** The connection of a request. */
export type BuildPeer = {
  /** The client's address; a function because it costs a system call. */
  readonly address: () => string
  /** Allows longer pauses in this response. */
  readonly mayPause: () => void
  /** Whether another host of the fleet forwarded the request, which is then not forwarded again. */
  readonly isForwarded?: boolean
  /** The caller that the other host has authenticated. Null if the caller has no key. */
  readonly principal?: ForwardedPrincipal | null
}

type BuildContext = BuildPeer & EdgeContext
export type BuildFetch = EdgeFetch<BuildPeer>

export type BuildRoutesDeps = Runtime & {
  readonly service: BuildsService
  readonly whenFull: ForwardWhenFull
  readonly files: BuildFiles
  readonly events: EventLogs
  readonly hostId: string
  readonly peers: Pick<BuildPeers, 'forward'>
  readonly directory: Pick<DirectoryStore, 'retryUnknownKey'>
  /**
   * Returns the caller from the headers, or from `passed` if another host forwarded the request. Faults: `forbidden`, …
   */
  readonly caller: (headers: Headers, need: 'read' | 'write', passed?: ForwardedPrincipal | null) => Caller
  /** Counts a request of a caller; by address if the caller has no key. Fault rate_limited. */
  readonly count: (caller: Caller, address: () => string) => void
  /** Counts a request that needs no key. Fault rate_limited. */
  readonly admitPublic: (address: string) => void
  /** Called before each request that changes something. May throw. */
  readonly admitChange: () => void
  readonly isVmUp: (vmId: string) => boolean
  readonly strangers: Pick<AnonymousLogLimit, 'level'>
  /** Base address; empty to use the host of each request. */
  readonly baseUrl: string
  readonly commands: RecordContext['commands']
  readonly rules: RequestRules
  readonly limits: SourceBodyLimits
  /** Limit on clients that follow events at the same time. */
  readonly readersMax: number
  /** Aborted when the daemon stops. */
  readonly signal: AbortSignal
  /** Text of /openapi.json. */
  readonly openapi: string
}

/** Dependencies of handlers, and the state that all requests share. */
type BuildApi = BuildRoutesDeps & { readonly deadlines: Deadlines; readonly readers: FairSlots }
type BuildHandler = (api: BuildApi, context: BuildContext) => Response | Promise<Response>

const HANDLERS: Readonly<Record<BuildOperation, BuildHandler>> = {
  health: ({ admitPublic }, { address }) => {
    admitPublic(address())
    return okText()
  },
  submitBuild: submit,
  retrieveBuild: async (api, context) => record(api, (await findAuthorized(api, context)).build, context.request),
  cancelBuild: async (api, context) => {
    const by = await caller(api, context, 'write')
    const build = await api.service.cancel(by, context.params.id ?? '', dispatcherOf(context))
    return record(api, build, context.request)
  },
  followBuild: follow,
  retrieveResult: result,
  reserveVm: async (api, context) => {
    const by = await caller(api, context, 'write')
    const reserved = await api.whenFull.reserve(by, context, () => api.service.reserve(by))
    if (reserved instanceof Response) return reserved
    const { vmId, expiresAtMs } = reserved
    const vm_url = `${baseOf(api, context.request)}/vm/${vmId}`
    return Response.json({ vm_id: vmId, vm_url, expires_at: iso(expiresAtMs) } satisfies BuildVmReserved)
  },
  retrieveOpenapi: ({ admitPublic, openapi }, { address }) => {
    admitPublic(address())
    return new Response(openapi, { headers: { 'Content-Type': 'application/json' } })
  },
  vmHealth: async (api, context) => {
    const { admitPublic, isVmUp } = api
    admitPublic(context.address())
    const vmId = context.params.vm ?? ''
    const hostId = await api.service.hostOfVm(vmId)
    if (hostId === null) throw new Fault('not_found', 'There is no such VM.')
    if (hostId !== api.hostId) return await forwardToHost(api, hostId, { context, by: null })
    if (!isVmUp(vmId)) {
      throw new UnavailableFault('This VM is not running now; a build that is sent to it waits until it is.', 5_000)
    }
    return okText()
  },
}

const AT_DISPATCHER = joined(BUILD_OPERATIONS, HANDLERS)
export const BUILD_ROUTES = [...AT_DISPATCHER, ...atVm(AT_DISPATCHER)]

/** Creates the handler. `others`: routes documented in another specification. */
export function createBuildHttp(deps: BuildRoutesDeps, others: readonly EdgeRoute<BuildPeer>[]): BuildFetch {
  const { log, clock, random, strangers } = deps
  const api: BuildApi = { ...deps, deadlines: createDeadlines(clock), readers: new FairSlots(deps.readersMax) }
  const routes = BUILD_ROUTES.map(({ row: handle, ...place }) => ({
    ...place,
    respond: (context: BuildContext) => handle(api, context),
  }))
  return createEdge({
    log,
    clock,
    random,
    admitChange: deps.admitChange,
    strangers,
    routes: [...routes, ...others],
    paramCharsMax: 128,
    failureDocument: (_context, error): BuildProblem => ({ error }),
  })
}

async function caller(api: BuildApi, context: BuildContext, need: 'read' | 'write'): Promise<Caller> {
  const { headers } = context.request
  const by = await api.directory.retryUnknownKey(() => api.caller(headers, need, context.principal))
  context.organization = by.slug
  api.count(by, context.address)
  return by
}

/** Returns the VM of the address; null for the dispatcher's own address. */
function dispatcherOf({ params }: BuildContext): { readonly vmId: string | null } {
  return { vmId: params.vm ?? null }
}

type AuthorizedBuild = { readonly by: Caller; readonly build: Build }

async function findAuthorized(api: BuildApi, context: BuildContext): Promise<AuthorizedBuild> {
  const by = await caller(api, context, 'read')
  return { by, build: await api.service.find(by, context.params.id ?? '', dispatcherOf(context)) }
}

/** Returns the response of the host that owns the object. Fault fleet.unavailable. */
async function forwardToHost(
  { peers }: BuildApi,
  hostId: string,
  { context, by }: { readonly context: BuildContext; readonly by: Caller | null },
): Promise<Response> {
  const { request, address } = context
  context.mayPause()
  return await peers.forward(hostId, request, forwardingOptions(by, request, address))
}

function forwardingOptions(by: Caller | null, { method }: Request, address: () => string) {
  return { clientAddress: address(), principal: by === null ? null : principalOf(by, method) }
}

function record(api: BuildApi, build: Build, request: Request): Response {
  return Response.json(toBuildRecord(build, { baseUrl: baseOf(api, request), commands: api.commands }))
}

async function submit(api: BuildApi, context: BuildContext): Promise<Response> {
  const { service, files, deadlines, limits } = api
  const { request } = context
  const place = dispatcherOf(context)
  const uploader = await caller(api, context, 'write')
  if (place.vmId !== null) {
    const hostId = await service.hostOfVm(place.vmId)
    if (hostId !== null && hostId !== api.hostId) return await forwardToHost(api, hostId, { context, by: uploader })
  }
  const begin = () => {
    service.admit(uploader, place, context.address)
    return service.beginUpload(uploader, context.address)
  }
  // A reserved VM belongs to this host, and its build is accepted here.
  const begun = place.vmId === null ? await api.whenFull.submit(uploader, context, begin) : begin()
  if (begun instanceof Response) return begun
  try {
    // A source takes long on a slow line.
    context.mayPause()
    const path = files.incomingPath(newUuid(api.random))
    const { json, upload } = await readSourceBody(request, path, { limits, deadlines })
    try {
      const wanted = parseBuildRequest(json, upload, api.rules)
      // The key may have been revoked while the body arrived.
      const build = await service.submit(
        api.caller(request.headers, 'write', context.principal),
        wanted,
        place,
        context.address,
      )
      const base = baseOf(api, request) + (place.vmId === null ? '' : `/vm/${place.vmId}`)
      return Response.json({ job_id: build.id, build_url: `${base}/build/${build.id}` } satisfies BuildAccepted)
    } finally {
      // An accepted source has been renamed already.
      if (upload !== null) removeIncoming(upload.path, api.log)
    }
  } finally {
    begun()
  }
}

async function follow(api: BuildApi, context: BuildContext): Promise<Response> {
  const { files, readers, readersMax, log, hostId } = api
  const { by: follower, build } = await findAuthorized(api, context)
  const afterId = startOf(context.request)
  const isHere = build.hostId === hostId
  const isOpen = build.closedAtMs === null
  // The first event of an open build may not have been written yet.
  const hasEvents = !isHere || isOpen || fileExists(files.path(build.id, 'events'))
  if (build.removedAtMs !== null || !hasEvents) {
    throw new Fault('not_found', 'The events of this build were removed to make room.')
  }
  if (!isHere && (!isOpen || context.isForwarded === true)) {
    return await forwardToHost(api, build.hostId, { context, by: follower })
  }
  const headers = { 'Content-Type': 'text/event-stream', 'X-Accel-Buffering': 'no' }
  if (context.request.method === 'HEAD') return new Response(null, { headers })
  const leave = readers.take(ownersOf(follower, context.address(), PARTS.followers))
  if (leave === 'own')
    throw new LimitedFault('You have reached the limit of concurrent event streams; close one first.', 5_000)
  if (leave === 'all')
    throw new LimitedFault(`The service has reached its limit of ${readersMax} event streams; retry later.`, 5_000)
  context.mayPause()
  const signal = AbortSignal.any([context.request.signal, api.signal])
  let first: Response | null = null
  try {
    first = isHere ? null : await eventsElsewhere(api, context, { by: follower, hostId: build.hostId, afterId, signal })
  } catch (error) {
    leave()
    throw error
  }
  if (first !== null && first.status !== 200) {
    leave()
    return first
  }
  const reader = readerOf(api, context, { by: follower, id: build.id, afterId, first })
  const stream = eventStream(reader, signal, {
    onEnd: () => {
      reader.close()
      leave()
    },
    onFailure: error => log.error('the events of a build cannot be read', { build: build.id, error }),
  })
  return new Response(stream, { headers })
}

function readerOf(
  api: BuildApi,
  context: BuildContext,
  {
    by,
    id,
    afterId,
    first,
  }: {
    readonly by: Caller
    readonly id: string
    readonly afterId: number
    readonly first: Response | null
  },
): FleetReader {
  const { service, events, clock, hostId } = api
  return new FleetReader(
    {
      clock,
      hostId,
      look: () => service.look(id),
      local: (build, from) => events.reader(id, { afterId: from, isOpen: build.closedAtMs === null }),
      remote: async (other, from, signal) =>
        context.isForwarded === true
          ? new Response(null, { status: 404 })
          : await eventsElsewhere(api, context, { by, hostId: other, afterId: from, signal }),
    },
    { afterId, first },
  )
}

/** Streams events from another host. Fault fleet.unavailable. */
async function eventsElsewhere(
  { peers }: BuildApi,
  { request, address, params }: BuildContext,
  {
    by,
    hostId,
    afterId,
    signal,
  }: {
    readonly by: Caller
    readonly hostId: string
    readonly afterId: number
    readonly signal: AbortSignal
  },
): Promise<Response> {
  const headers = new Headers(request.headers)
  headers.set('last-event-id', String(afterId))
  const asked = new Request(`https://strongroom.internal/build/${params.id ?? ''}/events`, { headers, signal })
  return await peers.forward(hostId, asked, forwardingOptions(by, asked, address))
}

async function result(api: BuildApi, context: BuildContext): Promise<Response> {
  const { files } = api
  const { by, build } = await findAuthorized(api, context)
  const { state, resultBytes, resultSha256, removedAtMs, id } = build
  if (state !== 'ok' || resultBytes === null || resultSha256 === null) {
    throw new Fault('not_found', 'This build has no result; check its state.')
  }
  if (removedAtMs === null && build.hostId !== api.hostId)
    return await forwardToHost(api, build.hostId, { context, by })
  if (removedAtMs !== null || !files.hasResult(id)) {
    throw new Fault('not_found', 'The result of this build was removed to make room.')
  }
  context.mayPause()
  const file = { path: files.path(id, 'result'), sizeBytes: resultBytes, sha256: resultSha256, name: `${id}.tar.gz` }
  return resultResponse(context.request, file)
}

function removeIncoming(path: string, log: Logger): void {
  try {
    removeFile(path)
  } catch (error) {
    log.warn('a source that was not accepted was not removed', { error })
  }
}

function okText(): Response {
  return new Response('ok', { headers: { 'Content-Type': 'text/plain;charset=utf-8' } })
}

/** Returns the configured address, or the one that this client used. */
function baseOf({ baseUrl }: BuildRoutesDeps, request: Request): string {
  if (baseUrl !== '') return baseUrl
  const host = request.headers.get('host') ?? ''
  return /^[A-Za-z0-9.:[\]-]{1,255}$/.test(host) ? `https://${host}` : 'https://localhost'
}
