// Chooses the host of a new instance: the one with most free places among those that may take it. Pure.

import type { Placement } from '../../store/db.ts'
import type { HostRow } from './feed.ts'

type PlacementRequest = {
  /** Platform of the requested host, which its clients expect. */
  readonly platform: string
  /** Number of instances placed already, by host. */
  readonly taken: ReadonlyMap<string, number>
}

/** The first schema whose hosts support moving an instance to another host. */
const attemptsSchema = 3

/** Returns the hosts to which an instance of the host `hostId` may be moved. */
export function otherHosts(hosts: readonly HostRow[], hostId: string): readonly HostRow[] {
  return hosts.filter(({ id, schema }) => id !== hostId && (schema ?? 0) >= attemptsSchema)
}

export function placementOf(hosts: readonly HostRow[], { platform, taken }: PlacementRequest): Placement {
  const freeOf = ({ id, places }: HostRow) => places - (taken.get(id) ?? 0)
  const conditions: readonly (readonly [reason: string, holds: (host: HostRow) => boolean])[] = [
    ['no host has a lease', host => host.hasLease],
    ['every host that has a lease drains', host => !host.isDraining],
    ['every host that takes instances is still copying changes of the directory', host => !host.isBehind],
    [`no host that takes instances has the platform ${platform}`, host => host.platform === platform],
    ['every host is full', host => freeOf(host) > 0],
  ]
  let left = [...hosts]
  for (const [reason, holds] of conditions) {
    left = left.filter(holds)
    if (left.length === 0) return { kind: 'refused', reason }
  }
  const [best] = left.sort((a, b) => freeOf(b) - freeOf(a) || (a.id < b.id ? -1 : 1))
  return best === undefined ? { kind: 'refused', reason: 'there is no host' } : { kind: 'placed', hostId: best.id }
}
