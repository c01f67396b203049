// Addresses at which the fleet's other running hosts serve clients, for DNS. Effects: statements to PostgreSQL, a
// timer.

import { isIPv4, isIPv6 } from 'node:net'
import { type Clock, pause } from '../../base/clock.ts'
import type { HostName } from '../../config/listen.ts'
import type { ServiceAddresses } from '../../contract/admin/fleet.ts'
import type { PeerList } from './peer-list.ts'
import type { PeerRow } from './peers.query.ts'

/** Together with a lease of six seconds, no host names a dead host for longer than ten. */
const lookEveryMs = 2_000

export type ServingDeps = {
  readonly hostId: string
  readonly list: Pick<PeerList, 'all'>
  readonly clock: Clock
  /** Called with the current hosts. Must not throw. */
  readonly onLook: (hosts: readonly ServiceAddresses[]) => void
}

/** Polls until the signal is aborted. Never rejects. While the database is unreachable, hosts stay unchanged. */
export async function watchServing({ hostId, list, clock, onLook }: ServingDeps, signal: AbortSignal): Promise<void> {
  for (let turn = 0; !signal.aborted; turn += 1) {
    onLook(servingHosts(await list.all(), { hostId, turn }))
    await pause(clock, lookEveryMs, signal)
  }
}

/** Returns the other hosts with a lease, rotated with each turn, because a DNS response names only a few. */
export function servingHosts(
  rows: readonly PeerRow[],
  { hostId, turn }: { readonly hostId: string; readonly turn: number },
): readonly ServiceAddresses[] {
  const others = rows.flatMap(row => {
    const services = servicesOf(row.services)
    const isServing = row.hostId !== hostId && row.hasLease && Object.values(services).some(pair => pair !== null)
    return isServing ? [services] : []
  })
  const first = others.length === 0 ? 0 : turn % others.length
  return [...others.slice(first), ...others.slice(0, first)]
}

/** Reads a host's addresses. A host of another release may report more, or in another form. */
function servicesOf(services: unknown): ServiceAddresses {
  const at = (label: HostName) => pairOf(Reflect.get(Object(services), label))
  return { ns: at('ns'), instances: at('instances'), inference: at('inference'), builds: at('builds') }
}

function pairOf(pair: unknown): ServiceAddresses[HostName] {
  const [v4, v6] = [Reflect.get(Object(pair), 'v4'), Reflect.get(Object(pair), 'v6')]
  const isV4 = typeof v4 === 'string' && isIPv4(v4)
  const isV6 = typeof v6 === 'string' && isIPv6(v6) && !/[.%]/.test(v6)
  return isV4 || isV6 ? { v4: isV4 ? v4 : null, v6: isV6 ? v6 : null } : null
}
