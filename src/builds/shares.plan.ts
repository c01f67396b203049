// Quotas of service C: for an organization and, for callers without keys, for one network and for all strangers. Pure.

import { type SlotOwner, shareOf } from '../base/work/fair-slots.ts'
import { networksOf } from '../http/client-network.ts'
import type { Caller } from './types.ts'

/** An organization's share of uploads and of followers, for which there is no time limit. */
export const PARTS = { uploads: 4, followers: 8 } as const
/** Anonymous callers leave an equal share to callers with a key, regardless of their number of addresses. */
const anonymousParts = 2
/** Share of the queue and of reserved VMs, without which the last VM could be blocked forever. */
const queueParts = 2
const reservedParts = 2

/**
 * Returns the owners whose slots a caller uses. Without a key, an address counts for every network that one client may
 * own.
 */
export function ownersOf({ organizationId }: Caller, address: string, parts: number): readonly SlotOwner[] {
  if (organizationId !== null) return [{ name: organizationId, parts }]
  return [{ name: 'strangers', parts: anonymousParts }, ...networkOwners(address, parts)]
}

/** Returns the share of a network in the slots of all strangers. */
export function networkQuotas(address: string): readonly SlotOwner[] {
  return networkOwners(address, anonymousParts)
}

/** Returns the owners of a slot by network. A wide network with many clients has twice the share of a narrow one. */
function networkOwners(address: string, parts: number): SlotOwner[] {
  return networksOf(address).map(({ name, width }) => ({
    name: `${width} ${name}`,
    parts: width === 'wide' ? parts : 2 * parts,
  }))
}

/** Returns the maximum number of queued builds of one organization, in addition to those with a free VM. */
export function queueShare(queueMax: number): number {
  return queueMax === 0 ? 0 : shareOf(queueMax, queueParts)
}

export function reservedShare(concurrentMax: number): number {
  return shareOf(concurrentMax, reservedParts)
}

type QueuedBuild = { readonly id: string; readonly organizationId: string | null }

/** VMs that an organization has used. */
export type Standing = { readonly vms: number; readonly lastStartedMs: number }

/**
 * Orders turns: the organization with the fewest VMs first, then the one whose last build started earliest, then its
 * oldest build. `waiting`: oldest first.
 */
export function inTurn<W extends QueuedBuild>(
  waiting: readonly W[],
  standingOf: (owner: string | null) => Standing,
): W[] {
  const queues = [...Map.groupBy(waiting.entries(), ([, { organizationId }]) => organizationId)].map(
    ([owner, builds]) => ({ builds, at: 0, ...standingOf(owner) }),
  )
  const ordered: W[] = []
  while (ordered.length < waiting.length) {
    const [next] = queues
      .filter(({ builds, at }) => at < builds.length)
      .sort((a, b) => a.vms - b.vms || a.lastStartedMs - b.lastStartedMs || headOf(a) - headOf(b))
    const build = next?.builds[next.at]?.[1]
    if (next === undefined || build === undefined) break
    ordered.push(build)
    next.at += 1
    next.vms += 1
    // Later than all that have started, in the order of these turns.
    next.lastStartedMs = Number.MAX_SAFE_INTEGER - waiting.length + ordered.length
  }
  return ordered
}

function headOf({
  builds,
  at,
}: {
  readonly builds: readonly (readonly [number, unknown])[]
  readonly at: number
}): number {
  return builds[at]?.[0] ?? 0
}
