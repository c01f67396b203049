// The endpoints of service C (contract 4.3): parse, one call, status. Each stands at the dispatcher and again at the address of every build VM.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { newUuid, type RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import { Places } from '../../base/work/places.ts'
import type { BuildAccepted, BuildVmReserved } from '../../contract/http/build-api.ts'
import { LimitedFault, UnavailableFault } from '../../http/limited.ts'
import { removeFile } from '../../linux/files.ts'
import type { Build } from '../../store/directory/build.table.ts'
import type { EventLogs } from '../events/events.ts'
import { type BuildFiles, fileExists } from '../files.ts'
import { type RecordContext, toBuildRecord } from '../record.ts'
import { parseBuildRequest, type RequestRules } from '../request.codec.ts'
import { type BuildsService, expiryText } from '../service.ts'
import { ownersOf, PARTS } from '../shares.plan.ts'
import type { Caller } from '../types.ts'
import { readSourceBody, type SourceBodyLimits } from './body.ts'
import { eventStream, startOf } from './event-stream.ts'
import { resultResponse } from './result-response.ts'
import type { BuildHttpContext, BuildRoute } from './server.ts'

export type BuildRoutesDeps = {
  readonly service: BuildsService
  readonly files: BuildFiles
  readonly events: EventLogs
  /** Who sent this, from its headers alone. Faults: unauthenticated, forbidden. */
  readonly caller: (headers: Headers, need: 'read' | 'write') => Caller
  /** Counts a request of a caller, or of an address where there is no key. Fault rate_limited. */
  readonly count: (caller: Caller, address: () => string) => void
  /** Counts a request that needs no key. Fault rate_limited. */
  readonly admitPublic: (address: string) => void
  readonly isVmUp: (vmId: string) => boolean
  /** '' for the host of each request. */
  readonly baseUrl: string
  readonly commands: RecordContext['commands']
  readonly rules: RequestRules
  readonly limits: SourceBodyLimits
  /** How many clients may follow events at the same time. */
  readonly readersMax: number
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
  /** Aborted when the daemon stops. */
  readonly signal: AbortSignal
  /** Text of /openapi.json. */
  readonly openapi: string
}

export function buildRoutes(deps: BuildRoutesDeps): readonly BuildRoute[] {
  const { service, admitPublic } = deps
  const handlers = handlersOf(deps)
  const reserve: BuildRoute['respond'] = context => {
    const { vmId, expiresAtMs } = service.reserve(handlers.caller(context, 'write'))
    const vm_url = `${baseOf(deps, context.request)}/vm/${vmId}`
    return Response.json({ vm_id: vmId, vm_url, expires_at: expiryText(expiresAtMs) } satisfies BuildVmReserved)
  }
  const vmHealth: BuildRoute['respond'] = ({ address, params }) => {
    admitPublic(address())
    const vmId = params.vm ?? ''
    if (!service.hasVm(vmId)) throw new Fault('not_found', 'There is no such VM.')
    if (!deps.isVmUp(vmId))
      throw new UnavailableFault('This VM is not up now; a build that is sent to it waits for it.', 5_000)
    return okText()
  }
  const below = (base: string): BuildRoute[] => [
    { method: 'POST', path: `${base}/build`, respond: handlers.submit },
    { method: 'GET', path: `${base}/build/:id`, respond: handlers.show },
    { method: 'DELETE', path: `${base}/build/:id`, respond: handlers.cancel },
    { method: 'GET', path: `${base}/build/:id/events`, respond: handlers.follow },
    { method: 'GET', path: `${base}/build/:id/result`, respond: handlers.result },
  ]
  return [
    {
      method: 'GET',
      path: '/health',
      respond: ({ address }) => {
        admitPublic(address())
        return okText()
      },
    },
    {
      method: 'GET',
      path: '/openapi.json',
      respond: ({ address }) => {
        admitPublic(address())
        return new Response(deps.openapi, { headers: { 'Content-Type': 'application/json' } })
      },
    },
    ...below(''),
    { method: 'POST', path: '/vm', respond: reserve },
    { method: 'GET', path: '/vm/:vm/health', respond: vmHealth },
    ...below('/vm/:vm'),
  ]
}

function handlersOf(deps: BuildRoutesDeps) {
  const { service, files, events, clock, random, log } = deps
  const deadlines = createDeadlines(clock)
  const readers = new Places(deps.readersMax)
  const caller = ({ request, address, noteOrganization }: BuildHttpContext, need: 'read' | 'write'): Caller => {
    const found = deps.caller(request.headers, need)
    noteOrganization(found.slug)
    deps.count(found, address)
    return found
  }
  const placeOf = ({ params }: BuildHttpContext) => ({ vmId: params.vm ?? null })
  const foundBy = (by: Caller, context: BuildHttpContext): Build =>
    service.find(by, context.params.id ?? '', placeOf(context))
  const found = (context: BuildHttpContext): Build => foundBy(caller(context, 'read'), context)
  const record = (build: Build, request: Request): Response =>
    Response.json(toBuildRecord(build, { baseUrl: baseOf(deps, request), commands: deps.commands }))

  const submit = async (context: BuildHttpContext): Promise<Response> => {
    const { request } = context
    const place = placeOf(context)
    const uploader = caller(context, 'write')
    service.admit(uploader, place, context.address)
    // A source may be long on its way, over a slow line.
    context.mayPause()
    return service.whileUploading(uploader, context.address, async () => {
      const path = files.incomingPath(newUuid(random))
      const { json, upload } = await readSourceBody(request, path, { limits: deps.limits, deadlines })
      try {
        const wanted = parseBuildRequest(json, upload, deps.rules)
        // What was true of the caller at the headers must still be true now.
        const build = await service.submit(deps.caller(request.headers, 'write'), wanted, place, context.address)
        const base = baseOf(deps, request) + (place.vmId === null ? '' : `/vm/${place.vmId}`)
        return Response.json({ job_id: build.id, build_url: `${base}/build/${build.id}` } satisfies BuildAccepted)
      } finally {
        // Accepted, it has another name by now.
        if (upload !== null) removeIncoming(upload.path, log)
      }
    })
  }

  const follow = (context: BuildHttpContext): Response => {
    const follower = caller(context, 'read')
    const build = foundBy(follower, context)
    const afterId = startOf(context.request)
    const isOpen = build.closedAtMs === null
    // Of one that goes on, the first event may not be written yet.
    if (build.removedAtMs !== null || !(isOpen || fileExists(files.path(build.id, 'events')))) {
      throw new Fault('not_found', 'The events of this build were removed to make room.')
    }
    const headers = { 'Content-Type': 'text/event-stream', 'X-Accel-Buffering': 'no' }
    if (context.request.method === 'HEAD') return new Response(null, { headers })
    const leave = readers.take(ownersOf(follower, context.address(), PARTS.followers))
    if (leave === 'own') throw new LimitedFault('As many clients of yours as may be follow builds already.', 5_000)
    if (leave === 'all') throw new LimitedFault(`${deps.readersMax} clients follow builds already.`, 5_000)
    context.mayPause()
    const reader = events.reader(build.id, { afterId, isOpen })
    const signal = AbortSignal.any([context.request.signal, deps.signal])
    const stream = eventStream(reader, signal, {
      onEnd: leave,
      onFailure: error => log.error('the events of a build cannot be read', { build: build.id, error }),
    })
    return new Response(stream, { headers })
  }

  const result = (context: BuildHttpContext): Response => {
    const build = found(context)
    const { state, resultBytes, resultSha256, removedAtMs, id } = build
    if (state !== 'ok' || resultBytes === null || resultSha256 === null) {
      throw new Fault('not_found', 'There is no result of this build; see its state.')
    }
    if (removedAtMs !== null || !files.hasResult(id)) {
      throw new Fault('not_found', 'The result of this build was removed to make room.')
    }
    context.mayPause()
    const file = { path: files.path(id, 'result'), sizeBytes: resultBytes, sha256: resultSha256, name: `${id}.tar.gz` }
    return resultResponse(context.request, file)
  }

  return {
    caller,
    submit,
    follow,
    result,
    show: (context: BuildHttpContext) => record(found(context), context.request),
    cancel: (context: BuildHttpContext) =>
      record(service.cancel(caller(context, 'write'), context.params.id ?? '', placeOf(context)), context.request),
  }
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

/** As the configuration says, else as this client has reached us. */
function baseOf({ baseUrl }: BuildRoutesDeps, request: Request): string {
  if (baseUrl !== '') return baseUrl
  const host = request.headers.get('host') ?? ''
  return /^[A-Za-z0-9.:[\]-]{1,255}$/.test(host) ? `https://${host}` : 'https://localhost'
}
