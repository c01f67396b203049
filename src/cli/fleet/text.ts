// Hosts of a fleet for people. Pure.

import type { FleetHost, FleetHosts } from '../../contract/admin/fleet.ts'
import { dash, fields, oneLine, type Paint, table, timeText } from '../../terminal/render.ts'

export function hostsText({ hosts }: FleetHosts, paint: Paint): string {
  if (hosts.length === 0) return 'the fleet has no hosts\n'
  const rows = hosts.map(host =>
    [
      host.is_this_host ? `${host.name} (this host)` : host.name,
      paint.word(host.state),
      dash(host.platform),
      String(host.instances),
      String(host.places_free),
      dash(host.warm),
      dash(host.version),
      timeText(host.last_seen_at),
      dash(host.lacking),
    ].map((cell, column) => (column === 1 ? cell : oneLine(cell))),
  )
  const head = ['NAME', 'STATE', 'PLATFORM', 'INSTANCES', 'FREE', 'WARM', 'VERSION', 'LAST SEEN', 'LACKING']
  return table(paint, head, rows)
}

export function hostText(host: FleetHost, paint: Paint): string {
  const used = (is: number | null, of: number | null, unit: string) => `${dash(is)} of ${dash(of)}${unit}`
  return fields(paint, [
    ['name', oneLine(host.name) + (host.is_this_host ? ' (this host)' : '')],
    ['state', `${paint.word(host.state)}: ${STATES[host.state]}`],
    ['id', oneLine(host.id)],
    ['database role', oneLine(host.role)],
    ['joined', host.joined_at],
    ['drains since', dash(host.draining_since)],
    ['last seen', dash(host.last_seen_at)],
    ['clock', host.clock_ahead_ms === null ? '-' : `${host.clock_ahead_ms} ms ahead of the database`],
    ['version', `${oneLine(dash(host.version))}, supports schema ${dash(host.schema)}`],
    ['platform', oneLine(dash(host.platform))],
    ['domain', oneLine(dash(host.domain))],
    ['image', oneLine(dash(host.image))],
    ['operator key', oneLine(dash(host.operator_key))],
    ['chip', oneLine(host.chip_id ?? '-')],
    ['answers hosts', oneLine(host.peer_address ?? 'no: fleet.peer_listen is off there')],
    ['by the key', dash(host.peer_key)],
    ...reachedFields(host, paint),
    ['instances', `${host.instances}, room for ${host.places_free} more`],
    ['lacking', oneLine(dash(host.lacking))],
    ['warm VMs', dash(host.warm)],
    ['memory', used(host.memory_mib_used, host.memory_mib_total, ' MiB')],
    ['vCPUs', used(host.vcpus_used, host.vcpus_total, '')],
  ])
}

function reachedFields({ is_reached, peer_problem, is_this_host }: FleetHost, paint: Paint): [string, string][] {
  if (is_this_host) return []
  if (is_reached === null) return [['reached', 'not tried']]
  if (is_reached) return [['reached', 'yes, from this host']]
  const remedy = 'see that its fleet.peer_listen is open to this host, and that both run (strongroom doctor)'
  return [['reached', oneLine(`${paint.bad('no')}: ${dash(peer_problem)}; ${remedy}`)]]
}

const STATES = {
  serving: 'takes new instances',
  draining: 'takes no new instances',
  silent: 'has no lease; its VMs may go on',
  lost: 'was silent for too long: its instances have failed',
  new: 'has never renewed its lease',
} as const satisfies Record<FleetHost['state'], string>
