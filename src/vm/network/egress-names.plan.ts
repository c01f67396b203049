// Instances that reach the world only by name: addresses from our DNS, as sets and rules of the appliance's table.
// Pure.
//
// The sets are looked up in chain `replies`, after connection tracking, because only there it is known whether a packet
// begins a flow. A flow outlives its address in the set. The kernel removes expired addresses, so the list closes if
// the daemon is dead.

import { type Element, elementLines } from './nft-elements.plan.ts'

/** The list of names that instances may reach. */
export type EgressNames = {
  /** UDP port of the next hops that answers queries. */
  readonly port: number
  /** Whether the kernel holds addresses of another list, which must be removed. */
  readonly isStale: boolean
}

/** `timeoutMs`: how long the address stays open. It is written in the usual form of its family. */
export type NamedAddress = { readonly address: string; readonly timeoutMs: number }

/**
 * Per family. The daemon remembers half as many, as its predecessor's and just expired ones still
 * take places.
 * Share: an eighth for one instance (`named-addresses.ts`).
 */
const elementsMax = 16_384
/** Share: an eighth for one instance (`named-addresses.ts`). */
export const namedAddressesMax = elementsMax / 2

const SETS = [
  ['names_v4', 'ipv4_addr'],
  ['names_v6', 'ipv6_addr'],
] as const
const rates = 'name_rates'

/** Limits of queries per second for one instance and for all together. The kernel drops queries above them. */
const questions = { perSecond: 50, perSecondOfAll: 1_000 } as const

export function nameSetLines(table: string, { isStale }: EgressNames): string[] {
  return [
    // Flushed only if they belong to another list, because an address stays open for the TTL that the instance got.
    ...SETS.map(([name, type]) => `add set ${table} ${name} { type ${type}; size ${elementsMax}; flags timeout; }`),
    ...SETS.flatMap(([name]) => (isStale ? [`flush set ${table} ${name}`] : [])),
    `add set ${table} ${rates} { type ifname; size 65535; flags dynamic,timeout; timeout 1m; }`,
    `add chain ${table} ${namesChain}`,
    `flush chain ${table} ${namesChain}`,
  ]
}

export const namesChain = 'names'

function nameElements(addresses: readonly NamedAddress[]): Element[] {
  return addresses.map(
    ({ address, timeoutMs }): Element => [
      setOf(address),
      `${address} timeout ${Math.max(1, Math.ceil(timeoutMs / 1000))}s`,
    ],
  )
}

/**
 * Returns the text that opens addresses, each listed once, from now for its time. A separate transaction, so that a
 * full set does not block the rest of the ruleset. Kernels differ in whether adding an element again renews its time,
 * so each is deleted in between.
 */
export function openNamesText(tableName: string, addresses: readonly NamedAddress[]): string {
  const table = `inet ${tableName}`
  const opened = elementLines(table, nameElements(addresses))
  const known = elementLines(
    table,
    addresses.map(({ address }): Element => [setOf(address), address]),
  )
  return `${[...opened, ...known.map(line => line.replace(/^add/, 'delete')), ...opened].join('\n')}\n`
}

function setOf(address: string): (typeof SETS)[number][0] {
  return address.includes(':') ? 'names_v6' : 'names_v4'
}

export type NameRules = {
  readonly nextHop: string
  /** Null if VMs have no IPv6. */
  readonly nextHopV6: string | null
  readonly port: number
}

/** Returns the matches of an instance's DNS query. */
export function askingMatches({ nextHop, nextHopV6, port }: NameRules): string[] {
  return [
    `ip daddr ${nextHop} udp dport ${port}`,
    ...(nextHopV6 === null ? [] : [`ip6 daddr ${nextHopV6} udp dport ${port}`]),
  ]
}

/** Returns rules at the beginning of `replies` that drop queries above the rate. */
export function questionRules(to: NameRules): string[] {
  const { perSecond, perSecondOfAll } = questions
  return askingMatches(to).flatMap(match => [
    `${match} add @${rates} { iifname limit rate over ${perSecond}/second burst ${2 * perSecond} packets } drop`,
    `${match} limit rate over ${perSecondOfAll}/second burst ${2 * perSecondOfAll} packets drop`,
  ])
}

/** Returns chain `names`, for packets that begin a flow to the world. A name opens no address that is denied. */
export function nameRules({ nextHopV6 }: NameRules): string[] {
  const both = (v4: string, v6: string) => (nextHopV6 === null ? [v4] : [v4, v6])
  return [
    // Addresses that the operator has opened.
    ...both('ip daddr @egress_allowed goto destination', 'ip6 daddr @egress_allowed_v6 goto destination'),
    ...both(
      'meta l4proto { tcp, udp } ip daddr . th dport @egress_ports goto destination',
      'meta l4proto { tcp, udp } ip6 daddr . th dport @egress_ports_v6 goto destination',
    ),
    // DNS, and DNS over TLS and QUIC, of any server.
    'meta l4proto { tcp, udp } th dport { 53, 853 } goto refuse',
    ...both('ip daddr @names_v4 goto destination', 'ip6 daddr @names_v6 goto destination'),
    'goto refuse',
  ]
}
