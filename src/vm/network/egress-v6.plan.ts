// IPv6 destinations that are closed by default (IPv4: egress.plan.ts), as sets and rules of our table. Pure.

import type { Ipv4Range } from '../../base/ipv4.ts'
import { coversV6, formatIpv6, type Ipv6Range, mergedV6, parseIpv6, rangeOfV6 } from '../../base/ipv6.ts'
import { type EgressEntryV6, NEVER_FORWARDED_V6 } from '../../config/egress-v6.ts'
import { portElements } from './egress-ports.plan.ts'

export type EgressPlanV6 = {
  /** Network of the VMs' IPv6 addresses. */
  readonly pool: string
  /** This host's address on every tap. */
  readonly nextHop: string
  /** Entries that open denied destinations. */
  readonly allowed: readonly EgressEntryV6[]
}

export const EGRESS_SETS_V6 = [
  ['set', 'host_addresses_v6', 'ipv6_addr'],
  ['set', 'guests_v6', 'ifname . ether_addr . ipv6_addr'],
  ['set', 'egress_denied_v6', 'ipv6_addr; flags interval'],
  ['set', 'egress_allowed_v6', 'ipv6_addr; flags interval'],
  ['set', 'egress_ports_v6', 'ipv6_addr . inet_service; flags interval'],
] as const

/**
 * Only 2000::/3 is assigned to the world (RFC 4291 2.4). NAT64's well-known prefix (RFC 6052 2.1) leads to open IPv4.
 */
const nat64 = '64:ff9b::/96'
const OUTSIDE = [
  ['::', '64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['64:ff9b::1:0:0', '1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
  ['4000::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
] as const
/**
 * Special networks within it: IETF protocols with Teredo (RFC 6890), documentation (RFC 3849, RFC 9637), 6to4 (RFC
 * 3056).
 */
const SPECIAL = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'] as const

export type DestinationsV6 = Pick<EgressPlanV6, 'pool' | 'allowed'> & {
  /** IPv6 networks that this host is in. */
  readonly ownNetworks: readonly string[]
  /** IPv4 ranges that are denied, which a NAT64 gateway could lead to. */
  readonly deniedV4: readonly Ipv4Range[]
}

/** Returns the elements by set of EGRESS_SETS_V6; none overlap. */
export function egressElementsV6(to: DestinationsV6): [set: string, element: string][] {
  const denied = deniedRangesV6(to)
  const open = mergedV6(to.allowed.filter(entry => entry.ports === null))
  return [
    ...denied.map(range => ['egress_denied_v6', rangeText(range)] as [string, string]),
    ...open.map(range => ['egress_allowed_v6', rangeText(range)] as [string, string]),
    ...portElements(to.allowed, { after: value => value + 1n, before: value => value - 1n, text: rangeText }).map(
      element => ['egress_ports_v6', element] as [string, string],
    ),
  ]
}

function deniedRangesV6(to: DestinationsV6): Ipv6Range[] {
  const { first: base } = rangeOfV6(nat64)
  return mergedV6([
    ...OUTSIDE.map(([first, last]) => ({ first: parseIpv6(first), last: parseIpv6(last) })),
    ...to.deniedV4.map(({ first, last }) => ({ first: base + BigInt(first), last: base + BigInt(last) })),
    ...[...SPECIAL, to.pool, ...to.ownNetworks].map(rangeOfV6),
  ])
}

/** See `destinationKind` of egress.plan.ts. */
export function kindOfV6(address: string, to: DestinationsV6): 'world' | 'open' | 'denied' {
  const single = rangeOfV6(address)
  if (!deniedRangesV6(to).some(range => coversV6(range, single))) return 'world'
  const isClosed = [...NEVER_FORWARDED_V6, to.pool].some(network => coversV6(rangeOfV6(network), single))
  return !isClosed && to.allowed.some(range => coversV6(range, single)) ? 'open' : 'denied'
}

function rangeText({ first, last }: Ipv6Range): string {
  return first === last ? formatIpv6(first) : `${formatIpv6(first)}-${formatIpv6(last)}`
}

/** Destination unreachable, packet too big, time exceeded, parameter problem (RFC 4443 3) and echo reply. */
const ANSWERS = 'echo-reply, destination-unreachable, packet-too-big, time-exceeded, parameter-problem'

/**
 * A guest sends only from its own address, and only TCP, UDP or ICMPv6 without extension headers: no fragments and no
 * routing headers. ICMPv6 is limited to echoes and errors. Neighbour discovery is not needed, because each end has the
 * other as a fixed neighbour; router, DHCP and multicast messages are dropped. Protocols have nft's own words: those of
 * /etc/protocols, such as ipv6-icmp, are unknown on a bare Debian.
 */
export const ENTRY_RULES_V6 = [
  'iifname . ether saddr . ip6 saddr != @guests_v6 drop',
  'ip6 nexthdr != { tcp, udp, icmpv6 } drop',
  `meta nfproto ipv6 icmpv6 type != { echo-request, ${ANSWERS} } drop`,
] as const

/** Rules, by their place among those of IPv4. */
export const EGRESS_RULES_V6 = {
  here: ['ip6 daddr @host_addresses_v6'],
  /** TCP and UDP are handled above, so only ICMPv6 remains. */
  icmp: [`meta nfproto ipv6 icmpv6 type { ${ANSWERS} } accept`, 'meta nfproto ipv6 goto destination'],
  replies: [`meta nfproto ipv6 icmpv6 type { ${ANSWERS} } drop`],
  destination: ['ip6 daddr @egress_denied_v6 goto denied_v6', 'meta nfproto ipv6 tcp dport 25 goto denied_v6'],
} as const

/** Returns chain `denied_v6`. */
export function deniedRulesV6(pool: string): string[] {
  return [
    `ip6 daddr { ${NEVER_FORWARDED_V6.join(', ')} } drop`,
    `ip6 daddr ${pool} goto refuse`,
    'ip6 daddr @egress_allowed_v6 return',
    'meta l4proto { tcp, udp } ip6 daddr . th dport @egress_ports_v6 return',
    'goto refuse',
  ]
}
