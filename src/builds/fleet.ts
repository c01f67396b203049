// Service C in a fleet: its interface to the other hosts. Pure.

import type { ForwardedPrincipal } from '../contract/http/forwarded-principal.ts'
import { LimitedFault, UnavailableFault } from '../http/limited.ts'
import type { DirectoryTx } from '../store/db.ts'

/** The other hosts of the fleet. */
export type BuildPeers = {
  /** Returns hosts that were reached recently. */
  readonly others: () => readonly string[]
  /**
   * Forwards a request to another host, in the name of a caller that this host has authenticated. Fault
   * fleet.unavailable.
   */
  readonly forward: (
    hostId: string,
    request: Request,
    by: { readonly clientAddress: string; readonly principal: ForwardedPrincipal | null },
  ) => Promise<Response>
  /** Fetches a file of a build in this host's own name (handover.ts). Fault fleet.unavailable. */
  readonly ask: (hostId: string, path: string, signal: AbortSignal) => Promise<Response>
}

/** A limit of this host, not of the caller: another host may have room. */
export class HostFullFault extends LimitedFault {}
/** This host accepts nothing new; another one may. */
export class HostClosedFault extends UnavailableFault {}

type Hosts = Pick<DirectoryTx['hosts'], 'find'>

/** Reports whether a host accepts builds. */
export function mayTake(hosts: Hosts, hostId: string): boolean {
  const host = hosts.find(hostId)
  return host?.hasLease === true && !host.isDraining
}

/** Reports whether a build queued at `hostId` can be fetched from there, or needs nothing from there. */
export function isWithinReach(
  hosts: Hosts,
  { hostId, sourceKind }: { readonly hostId: string; readonly sourceKind: 'archive' | 'git' },
): boolean {
  const host = hosts.find(hostId)
  return (host?.hasLease === true && host.answersHosts) || (sourceKind === 'git' && (host === null || host.isLost))
}
