// What of this host's network keeps the appliance from its work, or does more than it should. Pure.

import { atOnce } from '../../../base/turns.ts'
import { LISTENERS, type Listener, listenAddress, listenOverlap } from '../../../config/listen.ts'
import type { Config } from '../../../config/schema.ts'
import type { Listening } from '../../../host/network/listening.ts'
import type { Firewalls } from '../../../vm/firewall/foreign.driver.ts'
import { dropText, foreignDrops } from '../../../vm/firewall/foreign.plan.ts'
import { firewallSite } from '../../../vm/firewall/site.plan.ts'
import { anywhere, type Chain, chainName, type Packet, trace } from '../../../vm/firewall/trace.plan.ts'
import { type Check, fail, pass, skip, warn } from './check.ts'

export type NetworkFacts = {
  /** Whether the kernel forwards IPv4; null: it cannot be read. */
  readonly forwards: boolean | null
  /** Null when not run as root. */
  readonly firewalls: Firewalls | null
  /** Tables of family inet that are ours. */
  readonly ownTables: ReadonlySet<string>
  /** Interface of the default route. */
  readonly uplink: string | null
  /** Text: why it is not known. */
  readonly listening: readonly Listening[] | string
  readonly isRoot: boolean
}

/** `daemonPid`: null when no daemon answers. */
export function networkChecks(facts: NetworkFacts, config: Config, daemonPid: number | null): Check[] {
  return [forwardingCheck(facts, config), ...firewallChecks(facts, config), portsCheck(facts, config, daemonPid)]
}

/** The daemon turns forwarding on; then the host forwards for everybody, unless a firewall keeps it from that. */
function forwardingCheck({ forwards, firewalls, ownTables, uplink }: NetworkFacts, { network }: Config): Check {
  const name = 'forwarding'
  if (forwards === null) return fail(name, 'the kernel has no IPv4 forwarding', 'boot a kernel with IPv4')
  if (!forwards) return pass(name, 'off; the daemon turns it on')
  if (firewalls === null) return skip(name, 'needs root')
  if (firewalls.unread.length > 0) return skip(name, `the firewalls cannot be read: ${firewalls.unread.join('; ')}`)
  const chains = firewalls.chains.map(chain => withoutOurGuests(chain, ownTables))
  const forward = chains.filter(chain => chain.base?.hook === 'forward')
  const stranger: Packet = {
    ...{ name: 'a stranger', family: 'ipv4', iifname: uplink, oifname: null, saddr: anywhere, daddr: anywhere },
    ...{ protocol: 'tcp', sport: null, dport: null, ct_state: 'new', ct_status: 'none' },
  }
  const dropping = forward.find(chain => trace(chain, chains, stranger).fate === 'drops')
  if (dropping !== undefined) return pass(name, `on; ${chainName(dropping)} drops what is forwarded for others`)
  const detail = 'on, and no firewall drops what is forwarded for others: every neighbour can use this host as a router'
  const taps = network.tap_prefix
  const remedy = `unless it is to be one: nft 'table inet no_router { chain forward { type filter hook forward priority filter; policy drop; iifname "${taps}*" accept; oifname "${taps}*" accept; }; }', and keep that in /etc/nftables.conf`
  return warn(name, detail, remedy)
}

/** What our own rules ask of sets is about guests, and a stranger is in none of them. */
function withoutOurGuests(chain: Chain, own: ReadonlySet<string>): Chain {
  const isOurs = chain.family === 'inet' && own.has(chain.table)
  return isOurs ? { ...chain, rules: chain.rules.filter(rule => !rule.matches.includes('unknown')) } : chain
}

function firewallChecks({ firewalls, ownTables, uplink }: NetworkFacts, config: Config): Check[] {
  const name = 'firewalls'
  if (firewalls === null) return [skip(name, 'needs root')]
  const { chains, unread } = firewalls
  const drops = atOnce(foreignDrops(chains, firewallSite(config, uplink), ownTables))
  const found = drops.map(drop => {
    const cutsOff = drop.kind === 'instances' && drop.drops.length > 0
    return (cutsOff ? fail : warn)(name, dropText(drop), drop.remedy)
  })
  if (unread.length > 0) return [...found, skip(name, `not all can be read: ${unread.join('; ')}`)]
  if (found.length > 0) return found
  const others = new Set(chains.filter(chain => chain.base !== null).map(({ family, table }) => `${family} ${table}`))
  for (const own of ownTables) others.delete(`inet ${own}`)
  const who = others.size === 0 ? 'no other firewall' : [...others].join(', ')
  return [pass(name, `${who}: nothing that instances or services need is dropped`)]
}

function portsCheck({ listening, isRoot }: NetworkFacts, config: Config, daemonPid: number | null): Check {
  const name = 'ports'
  if (typeof listening === 'string') return skip(name, listening)
  const wanted = LISTENERS.flatMap(listener => wantedOf(listener, config))
  const taken = wanted.flatMap(({ listener, protocol, address }) => {
    const found = listening.find(
      one => one.protocol === protocol && one.holder?.pid !== daemonPid && listenOverlap(address, addressOf(one)),
    )
    // Without a name it may be the daemon's.
    return found === undefined || (found.holder === null && (!isRoot || daemonPid !== null))
      ? []
      : [{ listener, found }]
  })
  const [first] = taken
  if (first === undefined) {
    const ports = wanted.map(({ protocol, address }) => `${protocol} ${address.port}`).join(', ')
    return pass(name, daemonPid === null ? `free: ${ports}` : `free or the daemon's: ${ports}`)
  }
  const details = taken.map(
    ({ listener, found }) =>
      `${holderText(found)} has ${found.protocol} ${found.host}:${found.port} (listen.${listener})`,
  )
  return fail(name, details.join('; '), takenRemedy(first.listener, first.found))
}

type Wanted = {
  readonly listener: Listener
  readonly protocol: 'tcp' | 'udp'
  readonly address: { hostname: string; port: number }
}

/** Clients of a gateway in a VM are led there by the firewall: the host listens at no port for it. */
function wantedOf(listener: Listener, { listen, inference }: Config): Wanted[] {
  if (listen[listener] === '' || (listener === 'inference' && inference.placement === 'vm')) return []
  const address = listenAddress(listen[listener])
  const protocols = listener === 'dns' ? (['tcp', 'udp'] as const) : (['tcp'] as const)
  return protocols.map(protocol => ({ listener, protocol, address }))
}

function addressOf({ host, port }: Listening): { hostname: string; port: number } {
  return { hostname: host === '*' ? '::' : host, port }
}

function holderText({ holder }: Listening): string {
  return holder === null ? 'somebody' : `${holder.name} (pid ${holder.pid})`
}

function takenRemedy(listener: Listener, { holder, port, protocol }: Listening): string {
  if (holder?.name === 'systemd-resolve') {
    return 'write DNSStubListener=no below [Resolve] in /etc/systemd/resolved.conf; run systemctl restart systemd-resolved; or name one address of this host in listen.dns'
  }
  const who =
    holder === null
      ? `find it: ss --listening --numeric --processes '( sport = :${port} )'`
      : `systemctl status ${holder.pid} names its unit: stop and disable that`
  return `${who}; or give listen.${listener} another port than ${protocol} ${port}`
}
