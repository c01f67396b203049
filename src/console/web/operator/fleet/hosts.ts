// Describes hosts of a fleet: the meaning of each state, and problems of a host. Pure.

import type { FleetHost } from '../../../../contract/admin/fleet.ts'
import { durationText } from '../../core/format.ts'

/** The same texts as in `strongroom fleet show`. */
export const STATES = {
  serving: 'takes new instances',
  draining: 'takes no new instances',
  silent: 'has no lease; its VMs may go on',
  lost: 'was silent for too long: its instances have failed',
  new: 'has never renewed its lease',
} as const satisfies Record<FleetHost['state'], string>

export const STATE_TONES = {
  serving: 'good',
  draining: 'busy',
  silent: 'bad',
  lost: 'bad',
  new: 'plain',
} as const satisfies Record<FleetHost['state'], string>

/** The same limit as in `strongroom doctor`. */
const clockApartMs = 2_000

/** Returns one sentence for each problem. A draining host takes no instances, so it needs no capacity. */
export function faultsOf({ state, lacking, clock_ahead_ms: aheadMs, ...host }: FleetHost): readonly string[] {
  const found: string[] = []
  if (state === 'silent' || state === 'lost') found.push(STATES[state])
  if (state === 'serving' && lacking !== null) found.push(`takes no further instance: ${lacking}`)
  if (aheadMs !== null && Math.abs(aheadMs) > clockApartMs) {
    const apart = durationText(Math.round(Math.abs(aheadMs) / 1000))
    found.push(`its clock is ${apart} ${aheadMs > 0 ? 'ahead of' : 'behind'} the database's`)
  }
  if (host.is_reached === false) found.push(`is not reached from this host: ${host.peer_problem ?? 'no reason'}`)
  return found
}

const SAME = [
  { what: 'version', of: host => host.version, remedy: 'upgrade host by host: drain, upgrade, undrain' },
  { what: 'domain', of: host => host.domain, remedy: 'set one domain on all hosts: names of instances are in it' },
  {
    what: 'image',
    of: host => host.image,
    remedy: 'copy one image to all hosts: clients that pin a measurement refuse instances of another',
  },
] as const satisfies readonly { what: string; of: (host: FleetHost) => string | null; remedy: string }[]

export type Disagreement = { readonly what: string; readonly detail: string; readonly remedy: string }

/** Returns how the available hosts differ; empty if they do not differ in anything that matters to clients. */
export function disagreements(hosts: readonly FleetHost[]): readonly Disagreement[] {
  const there = hosts.filter(({ state }) => state === 'serving' || state === 'draining')
  return SAME.flatMap(({ what, of, remedy }) => {
    const groups = Map.groupBy(there, host => of(host) ?? 'none')
    if (groups.size <= 1) return []
    const parts = [...groups].map(([value, same]) => `${value}: ${same.map(({ name }) => name).join(', ')}`)
    return [{ what: `fleet ${what}s`, detail: parts.join('; '), remedy }]
  })
}
