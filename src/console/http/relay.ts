// The relay from a tenant's page to services A, B and C. Effects: those of the services; timers.
//
// A request needs a key of its service, in its Authorization header as with any client, or a session of the console.
// Cookies are not forwarded. The relay has its own limits per address and per organization or person: a service counts
// by key and by address, and its limits do not cover responses that wait in the console.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import { limitedPrefix } from '../../http/client-network.ts'
import { LimitedFault, UnavailableFault } from '../../http/limited.ts'
import { createPublicLimiter } from '../../http/public-rate.ts'
import type { Session } from '../sessions/sessions.ts'
import { boundedBody } from './body-end.ts'
import { noSuchService, type TenantPeer, type TenantServices, tenantPlace } from './tenant.routes.ts'

export type RelayBounds = {
  /** Concurrent requests. One address may have a quarter of them, one organization or person an eighth. */
  readonly openMax: number
  /** Requests from one IPv4 address or IPv6 /64. */
  readonly requestsPerMinute: number
  readonly requestBytesMax: number
  readonly responseBytesMax: number
  /** Longest time from the request's headers to the last byte of its response. */
  readonly exchangeMs: number
}

/** The largest body that a service accepts is a source of 1 GiB in base64, and pages download results of 512 MiB. */
export const RELAY_BOUNDS: RelayBounds = {
  /**
   * Share: an eighth for one organization or person, a quarter for one address, none for strangers.
   */
  openMax: 256,
  requestsPerMinute: 600,
  requestBytesMax: 1_610_612_736,
  responseBytesMax: 1_073_741_824,
  exchangeMs: 3_600_000,
}

const addressParts = 4
const ownerParts = 8

export type RelayDeps = {
  readonly clock: Clock
  readonly services: TenantServices
  readonly bounds: RelayBounds
}

export type RelayRequest = {
  readonly request: Request
  readonly path: string
  readonly search: string
  readonly peer: TenantPeer
  /** Looks up the session, for a request without a key. */
  readonly session: () => Session | null
}

/**
 * Relays a request. Faults: unauthenticated (neither key nor session), rate_limited, not_found, body_too_large,
 * attestation_unavailable (the exchange takes too long), and those of the services.
 */
export type Relay = (asked: RelayRequest) => Promise<Response>

export function createRelay({ clock, services, bounds }: RelayDeps): Relay {
  const deadlines = createDeadlines(clock)
  const places = new FairSlots(bounds.openMax)
  const rate = createPublicLimiter({ clock, requestsPerMinute: bounds.requestsPerMinute })

  /** Counts a request. Call it before looking up the key, so that requests with invalid keys count. */
  const countRequest = (address: string): void => {
    const refusal = rate.admitPublic(address)
    if (refusal !== null) throw new LimitedFault(refusal.message, refusal.retryAfterSeconds * 1000)
  }

  /** Reserves a slot for a request. Returns a function that releases it. */
  const admit = (address: string, owner: string): (() => void) => {
    const release = places.take([
      { name: `address ${limitedPrefix(address)}`, parts: addressParts },
      { name: owner, parts: ownerParts },
    ])
    if (release === 'own') throw new LimitedFault('You have reached the limit of open requests; close one.', 1_000)
    if (release === 'all') throw new LimitedFault('The console has reached its limit of open requests.', 1_000)
    return release
  }

  return async asked => {
    const { request, path, search, peer } = asked
    const place = tenantPlace(path)
    countRequest(peer.address())
    const { owner, ended } = await callerOf(services, asked, place.kind === 'service' ? place.name : 'any')
    const release = admit(peer.address(), owner)
    const over = new AbortController()
    const stop = deadlines.after(bounds.exchangeMs, () => over.abort(tooLong(bounds)))
    const end = () => {
      stop()
      release()
    }
    try {
      if (place.kind === 'addresses' && request.method === 'GET') {
        end()
        return Response.json({ ...services.urls, maintenance: services.maintenance() })
      }
      if (place.kind !== 'service') throw new Fault('not_found', place.kind === 'none' ? place.message : nothingHere)
      const service = services[place.name]
      if (service === null) throw new Fault('not_found', noSuchService(place.name))
      const signal = AbortSignal.any([request.signal, over.signal, ...ended])
      signal.throwIfAborted()
      const onward = onwardRequest(`https://strongroom.internal${place.rest}${search}`, { request, signal, bounds })
      const response = await beforeAbort(Promise.resolve(service(onward, { ...peer, owner })), signal)
      return withinBounds(response, { bounds, signal, end })
    } catch (error) {
      end()
      if (request.signal.aborted) return clientHasLeft()
      if (ended.some(({ aborted }) => aborted)) throw new Fault('unauthenticated', 'The session has ended.')
      throw error
    }
  }
}

/** Returns a response that only the access log shows, with nginx's status for such requests. */
function clientHasLeft(): Response {
  return new Response(null, { status: 499 })
}

const nothingHere = 'There is nothing at this path for this method.'

type Caller = { readonly owner: string; readonly ended: readonly AbortSignal[] }

/** Returns the owner of the request's key, or without a key that of its session. Fault unauthenticated. */
async function callerOf(
  { ownerOfKey }: TenantServices,
  { request, session }: RelayRequest,
  service: Parameters<TenantServices['ownerOfKey']>[1],
): Promise<Caller> {
  if (request.headers.has('authorization')) {
    return { owner: `organization ${await ownerOfKey(request.headers, service)}`, ended: [] }
  }
  const found = session()
  if (found === null) {
    const message = 'Send a key of the service as a Bearer token, or sign in to the console; both are missing.'
    throw new Fault('unauthenticated', message)
  }
  return { owner: `person ${found.person.actor}`, ended: [found.ended] }
}

/** Headers removed before forwarding: the operator's session, and what a browser reveals about the console's page. */
const REMOVED = ['cookie', 'origin', 'referer', 'host', 'connection', 'upgrade'] as const

type Onward = { readonly request: Request; readonly signal: AbortSignal; readonly bounds: RelayBounds }

/** Builds the forwarded request. Fault body_too_large. */
function onwardRequest(url: string, { request, signal, bounds }: Onward): Request {
  const { method } = request
  const bytesMax = bounds.requestBytesMax
  const headers = new Headers(request.headers)
  for (const removed of REMOVED) headers.delete(removed)
  if (Number(headers.get('content-length') ?? 0) > bytesMax) throw tooLarge('body', bytesMax)
  if (method === 'GET' || method === 'HEAD' || request.body === null)
    return new Request(url, { method, headers, signal })
  const body = boundedBody(request.body, { bytesMax, fault: tooLarge('body', bytesMax), signal, end: () => {} })
  return new Request(url, { method, headers, body, signal })
}

type Exchange = { readonly bounds: RelayBounds; readonly signal: AbortSignal; readonly end: () => void }

/** Limits the response. Fault body_too_large. */
function withinBounds(response: Response, { bounds, signal, end }: Exchange): Response {
  const { body, status, headers } = response
  const bytesMax = bounds.responseBytesMax
  const fault = tooLarge('response', bytesMax)
  if (body === null) {
    end()
    return response
  }
  if (Number(headers.get('content-length') ?? 0) > bytesMax) {
    void body.cancel().catch(() => {})
    throw fault
  }
  return new Response(boundedBody(body, { bytesMax, fault, signal, end }), { status, headers })
}

/** Returns the response. Rejects with the signal's reason if it is aborted first, and discards a later response. */
async function beforeAbort(response: Promise<Response>, signal: AbortSignal): Promise<Response> {
  const { promise, reject } = Promise.withResolvers<never>()
  const abort = () => {
    reject(signal.reason)
    response.then(({ body }) => body?.cancel()).catch(() => {})
  }
  signal.addEventListener('abort', abort, { once: true })
  try {
    return await Promise.race([response, promise])
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

function tooLong({ exchangeMs }: RelayBounds): UnavailableFault {
  return new UnavailableFault(`The console relays a request for at most ${exchangeMs / 1000} s; send it again.`, 1_000)
}

function tooLarge(what: 'body' | 'response', bytesMax: number): Fault {
  const message = `The ${what} has more than the ${bytesMax} bytes that the console relays; use the service's own address.`
  return new Fault('body_too_large', message)
}
