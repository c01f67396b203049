// Destinations that VMs of network `world` may reach, as sets and rules of the appliance's table. Pure.
//
// Denied packets are refused before the kernel tracks, routes or counts them. Possible answers to clients of the VM
// pass this point: chain `replies` decides about them once the connection is known.

import { containsRange, formatIpv4, type Ipv4Range, merged, rangeOf } from '../../base/ipv4.ts'
import { type EgressEntry, NEVER_FORWARDED } from '../../config/egress.ts'
import { askingMatches, type NameRules, nameRules, namesChain, questionRules } from './egress-names.plan.ts'
import { portElements } from './egress-ports.plan.ts'
import { deniedRulesV6, EGRESS_RULES_V6, type EgressPlanV6, egressElementsV6, kindOfV6 } from './egress-v6.plan.ts'

export type EgressPlan = {
  /** Entries that open denied destinations. */
  readonly allowed: readonly EgressEntry[]
  readonly newFlowsPerSecondMax: number
  readonly flowsMax: number
}

export type Destinations = {
  /**
   * The VMs' own pool, which stays closed between VMs regardless of the allowed destinations. Null if they have no
   * IPv4 addresses.
   */
  readonly pool: string | null
  /** Networks that this host is in, of either family. */
  readonly ownNetworks: readonly string[]
  readonly allowed: readonly EgressEntry[]
  readonly v6: EgressPlanV6 | null
}

/**
 * Private (RFC 1918), carriers' shared (RFC 6598) and link-local networks, with clouds' metadata services (RFC 3927).
 */
const PRIVATE = ['10.0.0.0/8', '100.64.0.0/10', '169.254.0.0/16', '172.16.0.0/12', '192.168.0.0/16'] as const

export const EGRESS_SETS = [
  ['set', 'host_addresses', 'ipv4_addr'],
  ['set', 'egress_denied', 'ipv4_addr; flags interval'],
  ['set', 'egress_allowed', 'ipv4_addr; flags interval'],
  ['set', 'egress_ports', 'ipv4_addr . inet_service; flags interval'],
] as const

/** Returns the elements by set of EGRESS_SETS and EGRESS_SETS_V6; none overlap, because the kernel refuses overlaps. */
export function egressElements(to: Destinations): [set: string, element: string][] {
  const { ownNetworks, allowed, v6 } = to
  const ownV6 = ownNetworks.filter(network => network.includes(':'))
  const denied = deniedRanges(to)
  const open = merged(allowed.filter(entry => entry.ports === null))
  return [
    ...denied.map(range => ['egress_denied', rangeText(range)] as [string, string]),
    ...open.map(range => ['egress_allowed', rangeText(range)] as [string, string]),
    ...portElements(allowed, { after: value => value + 1, before: value => value - 1, text: rangeText }).map(
      element => ['egress_ports', element] as [string, string],
    ),
    ...(v6 === null ? [] : egressElementsV6({ ...v6, ownNetworks: ownV6, deniedV4: denied })),
  ]
}

/**
 * Classifies a destination by the kernel's ranges. `open`: denied by default, but opened by the configuration at some
 * or all ports.
 */
export function destinationKind(address: string, to: Destinations): 'world' | 'open' | 'denied' {
  if (address.includes(':')) return to.v6 === null ? 'denied' : destinationKindV6(address, { ...to, v6: to.v6 })
  const single = rangeOf(address)
  if (!deniedRanges(to).some(range => containsRange(range, single))) return 'world'
  const isClosed = [...NEVER_FORWARDED, ...(to.pool === null ? [] : [to.pool])].some(network =>
    containsRange(rangeOf(network), single),
  )
  return !isClosed && to.allowed.some(range => containsRange(range, single)) ? 'open' : 'denied'
}

function destinationKindV6(address: string, to: Destinations & { readonly v6: EgressPlanV6 }) {
  const ownNetworks = to.ownNetworks.filter(network => network.includes(':'))
  return kindOfV6(address, { ...to.v6, ownNetworks, deniedV4: deniedRanges(to) })
}

function deniedRanges({ pool, ownNetworks }: Destinations): Ipv4Range[] {
  const own = ownNetworks.filter(network => !network.includes(':'))
  return merged([...PRIVATE, ...NEVER_FORWARDED, ...(pool === null ? [] : [pool]), ...own].map(rangeOf))
}

function rangeText({ first, last }: Ipv4Range): string {
  return first === last ? formatIpv4(first) : `${formatIpv4(first)}-${formatIpv4(last)}`
}

export type EgressRules = {
  readonly nextHop: string
  /** TCP ports of the next hop that these VMs may reach. */
  readonly nextHopPorts: readonly number[]
  /** Null if they have no IPv4 addresses. */
  readonly pool: string | null
  /** Null if they have no IPv6 addresses. */
  readonly v6: EgressPlanV6 | null
  /** TCP port of the gateway's VMs, whose addresses are in the set `gateway_addresses`. Null if there are none. */
  readonly servicePort: number | null
  /** Null if VMs reach the world without a list of names. */
  readonly names: NameRules | null
  /** TCP ports of VMs that answer all clients, beside 22. */
  readonly publicPorts: readonly number[]
}

/** Chains reached by jumps only. */
export const EGRESS_CHAINS = ['egress', 'here', 'replies', 'destination', 'denied', 'refuse'] as const
export const EGRESS_CHAINS_V6 = ['denied_v6'] as const
type Rule = [chain: (typeof EGRESS_CHAINS | typeof EGRESS_CHAINS_V6)[number] | typeof namesChain, rule: string]

export function egressRules({ nextHop, nextHopPorts, pool, servicePort, v6, names, publicPorts }: EgressRules): Rule[] {
  const answering = `tcp sport ${publicPorts.length === 0 ? '22' : `{ ${[22, ...publicPorts].join(', ')} }`}`
  const ports = `tcp dport { ${nextHopPorts.join(', ')} }`
  const also = (place: keyof typeof EGRESS_RULES_V6): readonly string[] => (v6 === null ? [] : EGRESS_RULES_V6[place])
  const open = [
    ...(nextHopPorts.length === 0 ? [] : [`ip daddr ${nextHop} ${ports} return`]),
    ...(nextHopPorts.length === 0 || v6 === null ? [] : [`ip6 daddr ${v6.nextHop} ${ports} return`]),
    ...(servicePort === null ? [] : [`ip daddr @gateway_addresses tcp dport ${servicePort} return`]),
    ...(names === null ? [] : askingMatches(names).map(match => `${match} return`)),
  ]
  return [
    // Rules at entry. `replies` decides later about answers of servers, ICMP and packets to this host.
    ...open.map(rule => ['egress', rule] as Rule),
    ['egress', 'ip daddr @host_addresses goto here'],
    ...also('here').map(rule => ['egress', `${rule} goto here`] as Rule),
    ['egress', `${answering} tcp flags & (syn | ack) != syn accept`],
    ['egress', 'meta l4proto { tcp, udp } goto destination'],
    ...also('icmp').map(rule => ['egress', rule] as Rule),
    // Redirects and router announcements are dropped.
    ['egress', `icmp type != { echo-request, ${ICMP_ANSWERS} } drop`],
    ['egress', `icmp type { ${ICMP_ANSWERS} } accept`],
    // Other protocols have no ports for address translation.
    ['egress', 'meta l4proto != icmp drop'],
    ['egress', 'goto destination'],
    ['here', 'tcp flags & (fin | syn | rst | ack) == syn goto refuse'],
    ['here', 'accept'],
    // After connection tracking.
    ...(names === null ? [] : questionRules(names).map(rule => ['replies', rule] as Rule)),
    ...open.map(rule => ['replies', rule] as Rule),
    ...(names === null
      ? []
      : [['replies', `${answering} ct direction original ct state new goto ${namesChain}`] satisfies Rule]),
    ['replies', `${answering} ct direction original goto destination`],
    ['replies', 'ct state established,related return'],
    ['replies', 'ip daddr @host_addresses goto refuse'],
    ...also('here').map(rule => ['replies', `${rule} goto refuse`] as Rule),
    ['replies', `icmp type { ${ICMP_ANSWERS} } drop`],
    ...also('replies').map(rule => ['replies', rule] as Rule),
    ...(names === null ? [] : [['replies', `goto ${namesChain}`] satisfies Rule]),
    ...(names === null ? [] : nameRules(names).map(rule => [namesChain, rule] as Rule)),
    ['destination', 'ip daddr @egress_denied goto denied'],
    ...also('destination').map(rule => ['destination', rule] as Rule),
    ['destination', 'tcp dport 25 goto denied'],
    ['denied', `ip daddr { ${NEVER_FORWARDED.join(', ')} } drop`],
    ...(pool === null ? [] : [['denied', `ip daddr ${pool} goto refuse`] satisfies Rule]),
    ['denied', 'ip daddr @egress_allowed return'],
    ['denied', 'meta l4proto { tcp, udp } ip daddr . th dport @egress_ports return'],
    ['denied', 'goto refuse'],
    ...(v6 === null ? [] : deniedRulesV6(v6.pool).map(rule => ['denied_v6', rule] as Rule)),
    ['refuse', `${atRefusalRate} reject with ${v6 === null ? 'icmp' : 'icmpx'} admin-prohibited`],
    ['refuse', 'drop'],
  ]
}

/**
 * Refusals to one VM, of all kinds together: the kernel has a single limit on ICMP messages for the whole host.
 */
export const atRefusalRate = 'add @refusals { iifname limit rate 5/second burst 10 packets }'

const ICMP_ANSWERS = 'echo-reply, destination-unreachable, time-exceeded, parameter-problem'
