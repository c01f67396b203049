// Instances that reach the world by name alone: the addresses that our own DNS has told them, as sets and rules of the appliance's table. Pure.
//
// Whether a packet begins a flow is known once the connection is, so the sets are looked up in chain `replies` and not as the packet comes. A flow
// that has begun outlives its address in the set. The kernel takes addresses out by itself when their time is over: with the daemon dead the list
// closes, it does not open.

import { type Element, elementLines } from './nft-elements.plan.ts'

/** What instances may reach of what they may ask for. */
export type EgressNames = {
  /** UDP port of the gateway addresses at which they ask. */
  readonly port: number
  /** Whether what the kernel holds is of another list, and is to go. */
  readonly isStale: boolean
}

/** Open for so long, in the spelling of its family. */
export type NamedAddress = { readonly address: string; readonly timeoutMs: number }

/** Of each family. The daemon remembers half as many: it may find those of the one before, and what expires leaves its place a moment later. */
const elementsMax = 16_384
export const namedAddressesMax = elementsMax / 2

const SETS = [
  ['names_v4', 'ipv4_addr'],
  ['names_v6', 'ipv6_addr'],
] as const
const rates = 'name_rates'

/** Questions of one instance, and of all together; what is over it is dropped before anybody reads it. */
const questions = { perSecond: 50, perSecondOfAll: 1_000 } as const

export function nameSetLines(table: string, { isStale }: EgressNames): string[] {
  return [
    // Not flushed, unless they are of another list: what was told to an instance stays true for as long as it was told.
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
 * A transaction of its own, for a set that is full must keep nobody from the rest of the ruleset. It opens addresses, each named once, for their time
 * from now, whether they are there already or not: kernels differ in whether adding them again gives them a new one.
 */
export function openNamesText(tableName: string, addresses: readonly NamedAddress[]): string {
  const table = `inet ${tableName}`
  const opened = elementLines(table, nameElements(addresses))
  const those = elementLines(
    table,
    addresses.map(({ address }): Element => [setOf(address), address]),
  )
  return `${[...opened, ...those.map(line => line.replace(/^add/, 'delete')), ...opened].join('\n')}\n`
}

function setOf(address: string): (typeof SETS)[number][0] {
  return address.includes(':') ? 'names_v6' : 'names_v4'
}

export type NameRules = {
  readonly gateway: string
  /** Null: VMs have no IPv6. */
  readonly gatewayV6: string | null
  readonly port: number
}

/** Where instances ask, as matches of a packet. */
export function askingMatches({ gateway, gatewayV6, port }: NameRules): string[] {
  return [
    `ip daddr ${gateway} udp dport ${port}`,
    ...(gatewayV6 === null ? [] : [`ip6 daddr ${gatewayV6} udp dport ${port}`]),
  ]
}

/** In front of `replies`: who asks too often is not heard. */
export function questionRules(to: NameRules): string[] {
  const { perSecond, perSecondOfAll } = questions
  return askingMatches(to).flatMap(match => [
    `${match} add @${rates} { iifname limit rate over ${perSecond}/second burst ${2 * perSecond} packets } drop`,
    `${match} limit rate over ${perSecondOfAll}/second burst ${2 * perSecondOfAll} packets drop`,
  ])
}

/** Of chain `input`. Nobody but a guest asks for names at the gateway addresses, whatever its source says. */
export function questionInputRules(to: NameRules | null, accept: string): string[] {
  return (to === null ? [] : askingMatches(to)).flatMap(match => [
    `iifname != @taps ${match} drop`,
    `iifname @taps ${match} ${accept}`,
  ])
}

/** Chain `names`, for what begins a flow to the world. What is denied by its address stays denied whatever a name leads to. */
export function nameRules({ gatewayV6 }: NameRules): string[] {
  const both = (v4: string, v6: string) => (gatewayV6 === null ? [v4] : [v4, v6])
  return [
    // What the operator has opened by its address.
    ...both('ip daddr @egress_allowed goto destination', 'ip6 daddr @egress_allowed_v6 goto destination'),
    ...both(
      'meta l4proto { tcp, udp } ip daddr . th dport @egress_ports goto destination',
      'meta l4proto { tcp, udp } ip6 daddr . th dport @egress_ports_v6 goto destination',
    ),
    // DNS, and DNS over TLS and QUIC, whoever offers it.
    'meta l4proto { tcp, udp } th dport { 53, 853 } goto refuse',
    ...both('ip daddr @names_v4 goto destination', 'ip6 daddr @names_v6 goto destination'),
    'goto refuse',
  ]
}
