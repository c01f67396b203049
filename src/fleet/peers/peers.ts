// Between hosts of a fleet: a client's request is forwarded to the host that owns its object. Pure.

import type { ForwardedPrincipal } from '../../contract/http/forwarded-principal.ts'

/** The public APIs whose requests hosts forward. `handover`: files of builds, requested by a host in its own name. */
export const PEER_SERVICES = ['instances', 'builds', 'handover'] as const
export type PeerService = (typeof PEER_SERVICES)[number]

export type Forwarded = {
  readonly service: PeerService
  /** The client's address, by which the other host counts and logs the request. */
  readonly clientAddress: string
  /** The caller that this host has authenticated; null for a caller without credentials, or this host itself. */
  readonly principal: ForwardedPrincipal | null
}

export type Peers = {
  /**
   * Forwards a request to another host of the fleet, which treats `principal` like its own clients. The client's key
   * and everything else that proves its identity stay here. Bodies stream in both directions. If the client
   * disconnects, the forwarded request is aborted; if the other host's response breaks off, so does this one. Status
   * and headers are the other host's. A response that may pause also needs `mayPause` of the client's own connection.
   * Fault `fleet.unavailable` (503 with Retry-After) if that host is unreachable, or another host forwarded the request
   * already.
   */
  readonly forward: (hostId: string, request: Request, options: Forwarded) => Promise<Response>
}
