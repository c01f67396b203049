// Whether this host's fleet is as it should be: its database, and its hosts beside each other. Pure.

import type { FleetHost } from '../../../contract/admin/fleet.ts'
import { type Check, fail, pass, warn } from '../check.ts'

export type FleetFacts =
  | { readonly kind: 'unread'; readonly database: string; readonly reason: string; readonly remedy: string }
  | {
      readonly kind: 'read'
      readonly database: string
      /** For one statement on an open connection. */
      readonly answerMs: number
      readonly isTls: boolean
      readonly schema: number
      readonly schemaNewest: number
      /** The role that this host signs in as. */
      readonly role: { readonly name: string; readonly isSuperuser: boolean; readonly isOwner: boolean }
      /** The role that owns the directory, and whether it may end a change that holds the counter for too long. */
      readonly owner: { readonly name: string; readonly endsChanges: boolean }
      /** Settings of the server. */
      readonly synchronousStandbyNames: string
      readonly synchronousCommit: string
      /** Connections that the server accepts from roles that are no superusers. */
      readonly connectionsMax: number
      /** Most that a host uses, with commands of its operator. */
      readonly connectionsPerHost: number
      readonly hosts: readonly FleetHost[]
    }

/** Slower, and each create waits for it several times over. */
const answerSlowMs = 50
/** Times of two hosts stand beside each other in records and bills. */
const clockApartMs = 2_000

export function fleetChecks(facts: FleetFacts): Check[] {
  if (facts.kind === 'unread') return [fail('fleet', `${facts.database}: ${facts.reason}`, facts.remedy)]
  const serving = facts.hosts.filter(({ state }) => state === 'serving' || state === 'draining')
  return [
    databaseCheck(facts),
    replicationCheck(facts),
    connectionsCheck(facts),
    roleCheck(facts),
    ownerCheck(facts),
    memberCheck(facts),
    hostsCheck(facts.hosts),
    sameCheck('fleet versions', serving, ({ version }) => version, 'upgrade host by host: drain, upgrade, undrain'),
    sameCheck(
      'fleet platforms',
      serving,
      ({ platform }) => platform,
      'a create that one host takes goes to hosts of the same platform alone: let clients ask one kind, or make two fleets',
    ),
    sameCheck(
      'fleet images',
      serving,
      ({ image }) => image,
      'copy one image to all hosts: clients that pin a measurement refuse instances of another',
    ),
    operatorKeysCheck(serving),
    domainCheck(serving),
    clocksCheck(serving),
    peersCheck(serving),
  ]
}

type ReadFleetFacts = Extract<FleetFacts, { readonly kind: 'read' }>

function databaseCheck({ database, answerMs, isTls, schema, schemaNewest }: ReadFleetFacts): Check {
  const tls = isTls ? 'TLS' : 'no TLS, on this machine'
  const detail = `${database} answers in ${Math.round(answerMs)} ms, ${tls}, schema ${schema} of ${schemaNewest}`
  if (answerMs <= answerSlowMs) return pass('fleet', detail)
  return warn('fleet', detail, 'put the database nearer to its hosts, or look what keeps it busy')
}

function replicationCheck({ synchronousStandbyNames: names, synchronousCommit: commit }: ReadFleetFacts): Check {
  const name = 'fleet replication'
  if (commit === 'off' || commit === 'local') {
    const detail = `synchronous_commit is ${commit}: what was answered may be lost when the server fails`
    return warn(name, detail, 'set synchronous_commit = on')
  }
  if (names === '') {
    const detail =
      'synchronous_standby_names is empty: if the server is lost, the last changes that clients were answered are lost, and with them names and idempotency keys'
    return warn(name, detail, 'name a standby in synchronous_standby_names (PostgreSQL manual, 27.2.8)')
  }
  return pass(name, `synchronous_standby_names = ${names}, synchronous_commit = ${commit}`)
}

function connectionsCheck({ connectionsMax, connectionsPerHost, hosts }: ReadFleetFacts): Check {
  const name = 'fleet connections'
  const needed = hosts.length * connectionsPerHost
  const detail = `${hosts.length} hosts may use ${needed} connections (${connectionsPerHost} each), and the database accepts ${connectionsMax}`
  if (needed <= connectionsMax) return pass(name, detail)
  return warn(name, detail, `raise max_connections of PostgreSQL by ${needed - connectionsMax}, then restart it`)
}

function roleCheck({ role }: ReadFleetFacts): Check {
  const name = 'fleet role'
  if (!role.isSuperuser && !role.isOwner) return pass(name, `signs in as ${role.name}`)
  const remedy = 'make a role for each host, and enter it by `strongroom fleet join --as …`, which gives it its rights'
  const problem = role.isSuperuser
    ? 'is a superuser: an attacker on this host has the whole database server'
    : 'owns the directory: an attacker on this host can write in the name of every other one'
  return warn(name, `${role.name} ${problem}`, remedy)
}

function ownerCheck({ owner: { name: owner, endsChanges } }: ReadFleetFacts): Check {
  const name = 'fleet owner'
  if (endsChanges) return pass(name, `${owner} may end connections of hosts`)
  const detail = `${owner}, which owns the directory, may not end connections: a host that hangs in a change holds up those of all hosts`
  const remedy = `as the administrator of the database: GRANT pg_signal_backend, pg_read_all_stats TO ${owner}`
  return warn(name, detail, remedy)
}

function memberCheck({ hosts }: ReadFleetFacts): Check {
  const name = 'fleet member'
  const own = hosts.find(host => host.is_this_host)
  if (own === undefined) return fail(name, 'the fleet does not have this host', 'enter it: `strongroom fleet join`')
  const detail = `${own.name}: ${own.state}, ${own.instances} instances, room for ${own.places_free} more`
  if (own.state === 'serving' || own.state === 'draining') return pass(name, detail)
  return warn(name, detail, 'start the service; without a lease this host takes no new instances')
}

function hostsCheck(hosts: readonly FleetHost[]): Check {
  const name = 'fleet hosts'
  const gone = hosts.filter(host => !host.is_this_host && ['silent', 'lost', 'new'].includes(host.state))
  if (gone.length === 0) return pass(name, `${hosts.length}, all of them are there`)
  const detail = gone.map(({ name, state }) => `${name} is ${state}`).join(', ')
  return warn(name, detail, 'start them, or `strongroom fleet forget` those that do not come back')
}

function sameCheck(
  name: string,
  hosts: readonly FleetHost[],
  of: (host: FleetHost) => string | null,
  remedy: string,
): Check {
  const groups = Map.groupBy(hosts, host => of(host) ?? 'none')
  if (groups.size <= 1) return pass(name, [...groups.keys()][0] ?? 'no host has a lease')
  return warn(name, groupsText(groups), remedy)
}

/** A fleet with several is as sound; clients have more to pin. */
function operatorKeysCheck(hosts: readonly FleetHost[]): Check {
  const name = 'fleet operator keys'
  const keys = new Set(hosts.flatMap(({ operator_key: key }) => key ?? []))
  if (keys.size <= 1) return pass(name, 'one for all hosts')
  return pass(name, `${keys.size}: clients pin all of them, or \`strongroom fleet share\` makes them one`)
}

function domainCheck(hosts: readonly FleetHost[]): Check {
  const name = 'fleet domain'
  const groups = Map.groupBy(hosts, ({ domain }) => domain ?? 'none')
  if (groups.size <= 1) return pass(name, [...groups.keys()][0] ?? 'no host has a lease')
  return fail(name, groupsText(groups), 'set one `domain` on all hosts: names of instances are in it')
}

function peersCheck(hosts: readonly FleetHost[]): Check {
  const name = 'fleet peers'
  if (hosts.length < 2) return pass(name, 'no other host is there')
  const silent = hosts.filter(host => host.peer_address === null)
  const away = hosts.filter(host => host.is_reached === false)
  if (away.length > 0) {
    const detail = `not reached from here: ${away.map(host => `${host.name} (${host.peer_problem ?? 'no reason'})`).join(', ')}`
    const remedy =
      'open fleet.peer_listen of each host to the others, over TCP; fleet.peer_address is where they look for it'
    return warn(name, detail, remedy)
  }
  if (silent.length > 0) {
    const detail = `${silent.map(host => host.name).join(', ')}: what they alone have is not served by others`
    return warn(name, detail, 'set fleet.peer_listen on them, open to the other hosts alone')
  }
  const reached = hosts.filter(host => host.is_reached === true).length
  return pass(
    name,
    `all answer others, ${reached} of ${hosts.filter(host => !host.is_this_host).length} reached from here`,
  )
}

function groupsText(groups: ReadonlyMap<string, readonly FleetHost[]>): string {
  return [...groups].map(([value, of]) => `${value}: ${of.map(({ name }) => name).join(', ')}`).join('; ')
}

function clocksCheck(hosts: readonly FleetHost[]): Check {
  const name = 'fleet clocks'
  const apart = hosts.filter(({ clock_ahead_ms: ms }) => Math.abs(ms ?? 0) > clockApartMs)
  if (apart.length === 0) return pass(name, `within ${clockApartMs / 1000} s of the database's`)
  const detail = apart.map(host => `${host.name} is ${host.clock_ahead_ms} ms ahead of the database`).join(', ')
  return warn(name, detail, 'synchronise the clocks (chrony or systemd-timesyncd) of hosts and database')
}
