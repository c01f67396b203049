// Between hosts of a fleet: a request of a client is passed on to the host that has its thing. Pure.

import type { ForwardedPrincipal } from '../../contract/http/forwarded-principal.ts'

/** The public APIs whose requests hosts pass on; `handover`: files of builds, asked for by a host in its own name. */
export const PEER_SERVICES = ['instances', 'builds', 'handover'] as const
export type PeerService = (typeof PEER_SERVICES)[number]

export type Forwarded = {
  readonly service: PeerService
  /** The client's: the other host counts and logs the request by it. */
  readonly clientAddress: string
  /**
   * The caller that this host has authenticated; null means a caller that showed no credential, or this host itself.
   */
  readonly principal: ForwardedPrincipal | null
}

export type Peers = {
  /**
   * Sends a request on to another host of the fleet, which answers `principal` as it answers its own
   * clients. The client's key and all else that proves its identity stay here. Bodies stream both ways.
   * The request ends there when the client leaves, and an answer that breaks off there breaks off here.
   * Status and headers are the other host's. An answer that may pause needs `mayPause` of the client's
   * own connection as well. Fault `fleet.unavailable` (503 with Retry-After): that host is not reached,
   * or the request has come from another host already.
   */
  readonly forward: (hostId: string, request: Request, options: Forwarded) => Promise<Response>
}
