// Serves other hosts of the fleet: handles requests of their clients like those of this host's own. Effects: those of
// its services. Strangers only get status 401.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { FairSlots } from '../../base/work/fair-slots.ts'
import { type ForwardedPrincipal, principalText } from '../../contract/http/forwarded-principal.ts'
import {
  type CalledService,
  decodeCall,
  peerField,
  type Refusal,
  refusalField,
  type SignedCall,
  signedBytes,
  targetOf,
} from './call.codec.ts'
import { untilEnd } from './forwarded.ts'
import { isSignedBy } from './peer-key.ts'
import type { PeerList } from './peer-list.ts'
import type { PeerService } from './peers.ts'
import type { SeenCalls } from './seen-calls.ts'

/** The connection of a request that another host forwarded. */
export type ForwardingPeer = {
  /** Returns the client's address, according to that host. */
  readonly address: () => string
  /** Allows longer pauses in this response. */
  readonly mayPause: () => void
  /** The caller that the other host has authenticated. Null if the caller has no key. */
  readonly principal: ForwardedPrincipal | null
  /** Id of the other host. */
  readonly from: string
}

/** A service's handler, as on its own listener. Never rejects. */
export type ForwardedFetch = (request: Request, peer: ForwardingPeer) => Promise<Response>

export type PeerServerDeps = {
  readonly hostId: string
  readonly list: Pick<PeerList, 'find'>
  readonly seen: SeenCalls
  /** A service is null if it is off. */
  readonly services: Readonly<Record<PeerService, ForwardedFetch | null>>
  readonly clock: Pick<Clock, 'nowMs'>
  readonly log: Logger
}

export type PeerServer = {
  /** Handles a request. Never rejects. */
  readonly fetch: (request: Request, mayPause: () => void) => Promise<Response>
  readonly view: () => PeerServerView
}

export type PeerServerView = {
  readonly underWay: number
  readonly served: Readonly<Record<CalledService, number>>
  /** Requests from outside of the fleet. */
  readonly strangers: number
  readonly refused: number
}

/** Share: a quarter for one host, which divides it among its clients. */
const callsMax = 4_096
/** Longest path in the log. */
const pathCharsMax = 200
/** Fraction of all concurrent calls for one host. */
const hostParts = 4

export function createPeerServer(deps: PeerServerDeps): PeerServer {
  const { hostId, list, seen, services, clock, log } = deps
  const places = new FairSlots(callsMax)
  const served = { instances: 0, builds: 0, handover: 0, alive: 0 }
  let strangers = 0
  let refused = 0

  const refuse = (call: SignedCall, refusal: Refusal): Response => {
    refused += 1
    log.debug('a call of another host was refused', { host: call.from, refusal })
    return new Response(null, { status: 401, headers: { [refusalField]: refusal } })
  }
  /** Logged for the operator, because a host of the fleet can act in the name of every key. */
  const note = ({ from, service, principal }: SignedCall, { method, url }: Request) => {
    const path = targetOf(url).split('?', 1)[0]?.slice(0, pathCharsMax)
    log.info('a call of another host was taken', { from, service, method, path, caller: principalText(principal) })
  }
  /** Returns the call; null if no host of this fleet signed it for this host. */
  const callOf = async (request: Request): Promise<SignedCall | null> => {
    const call = decodeCall(request.headers.get(peerField))
    if (call === null || call.to !== hostId || call.from === hostId) return null
    const certificate = (await list.find(call.from))?.certificate ?? null
    const bytes = signedBytes(call, { method: request.method, target: targetOf(request.url) })
    return certificate !== null && isSignedBy(certificate, bytes, call.signature) ? call : null
  }
  const answer = async (request: Request, mayPause: () => void): Promise<Response> => {
    const call = await callOf(request)
    if (call === null) {
      strangers += 1
      return new Response(null, { status: 401 })
    }
    const refusal = seen.take(call, clock.nowMs())
    if (refusal !== null) return refuse(call, refusal)
    if (call.service === 'alive') {
      served.alive += 1
      return new Response(null, { status: 204 })
    }
    const service = services[call.service]
    if (service === null) return refuse(call, 'off')
    const giveBack = places.take([{ name: call.from, parts: hostParts }])
    if (typeof giveBack === 'string') return refuse(call, 'busy')
    served[call.service] += 1
    note(call, request)
    request.signal.addEventListener('abort', giveBack, { once: true })
    const answered = await service(request, {
      address: () => call.client,
      ...{ mayPause, principal: call.principal, from: call.from },
    })
    return untilEnd(answered, answered.headers, giveBack)
  }
  return {
    fetch: async (request, mayPause) => {
      try {
        return await answer(request, mayPause)
      } catch (error) {
        log.error('a call of another host failed', { error })
        return new Response(null, { status: 503 })
      }
    },
    view: () => ({ underWay: places.count, served: { ...served }, strangers, refused }),
  }
}
