// Service C in a fleet: its interface to the other hosts. Pure.

import type { ForwardedPrincipal } from '../contract/http/forwarded-principal.ts'
import { LimitedFault, UnavailableFault } from '../http/limited.ts'

/** A host of the fleet, as a change of the directory sees it. */
export type BuildHost = {
  readonly hasLease: boolean
  readonly isDraining: boolean
  /** Whether the host has an address for other hosts. */
  readonly answersHosts: boolean
  /** Whether the host was silent for so long that its builds were given up. */
  readonly isLost: boolean
}

export type BuildFleet = {
  /** Null if the fleet does not have the host. Only within a change of the directory. */
  readonly hostState: (hostId: string) => BuildHost | null
  /** Other hosts that were reached lately. */
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
/** This host takes nothing new; another one may. */
export class HostClosedFault extends UnavailableFault {}

/** Reports whether a host accepts builds. Only within a change of the directory. */
export function mayTake(fleet: Pick<BuildFleet, 'hostState'>, hostId: string): boolean {
  const state = fleet.hostState(hostId)
  return state?.hasLease === true && !state.isDraining
}

/**
 * Reports whether a build that waits at `hostId` can be fetched from there, or needs nothing from there. Only within
 * a change of the directory.
 */
export function isWithinReach(
  fleet: Pick<BuildFleet, 'hostState'>,
  { hostId, sourceKind }: { readonly hostId: string; readonly sourceKind: 'archive' | 'git' },
): boolean {
  const state = fleet.hostState(hostId)
  return (state?.hasLease === true && state.answersHosts) || (sourceKind === 'git' && (state === null || state.isLost))
}
