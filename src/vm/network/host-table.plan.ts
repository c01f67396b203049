// Text of the appliance's table on this host itself, applied as one transaction by `nft --file -`. Pure.
//
// VMs are filtered and counted in their own namespace (nft.plan.ts). This table contains only what must be done on this
// host: it translates addresses, maps clients to the gateway's VM and limits connections to this host's own services.
// No restriction of VMs depends on it, so a flush opens nothing to VMs.

import { answerMark } from '../../base/link-names.ts'
import type { EgressSource } from '../../config/egress.ts'
import type { EgressSourceV6 } from '../../config/egress-v6.ts'
import type { GatewayListen, GatewayVmService } from './nft.plan.ts'
import { clientRules, RATED, ratedSetForm, type ServiceConnections, serviceRules } from './nft-services.plan.ts'

export type HostTablePlan = {
  readonly table: string
  /** Interface that leads to VMs. */
  readonly link: string
  /** This host's address on it. */
  readonly nextHop: string
  /** Null if no VM has IPv6. */
  readonly nextHopV6: string | null
  readonly source: EgressSource
  /** Null if no VM has IPv6. */
  readonly sourceV6: EgressSourceV6 | null
  /** Whether this host forwards only packets with a VM at one end. */
  readonly dropOthers: boolean
  readonly services: ServiceConnections
  /** Users of QEMU. They may send nothing, because a guest's packets come out of its tap. */
  readonly uids: { readonly min: number; readonly max: number }
  /** UDP port of the next hops where VMs resolve names. Null if there is none. */
  readonly namesPort: number | null
  /** Null if this host has none. */
  readonly gatewayListen: GatewayListen | null
  /** Null if there is no gateway in a VM. */
  readonly gatewayVmService: Pick<GatewayVmService, 'port' | 'address'> | null
}

const markAnswer = `meta mark set meta mark | 0x${answerMark.toString(16).padStart(8, '0')}`

const CHAINS = [
  // After connection tracking, before routing.
  ['answers', 'filter hook prerouting priority mangle'],
  ['input', 'filter hook input priority filter'],
  ['services', 'filter hook input priority filter - 20'],
  // See host/network/forwarding.ts.
  ['forward_others', 'filter hook forward priority filter'],
  ['gateway_clients', 'filter hook forward priority filter - 20'],
  ['qemu', 'filter hook output priority filter'],
  ['nat', 'nat hook postrouting priority srcnat'],
  // Maps connections for the gateway to its VM, from outside and from this host itself.
  ['mapped', 'nat hook prerouting priority dstnat'],
  ['mapped_here', 'nat hook output priority -100'],
] as const

const COUNTED = [
  ['connections_v4', 'ipv4_addr'],
  ['connections_v6', 'ipv6_addr'],
  ['connections_n4', 'ipv4_addr'],
  ['connections_n6', 'ipv6_addr'],
  // Connections to the gateway's VMs, of all clients outside together.
  ['connections_gateway', 'inet_service'],
] as const

type Rule = [chain: (typeof CHAINS)[number][0], rule: string]

export function hostTableText(plan: HostTablePlan): string {
  const table = `inet ${plan.table}`
  return `${[
    `add table ${table}`,
    // Never flushed, because they hold counts.
    ...COUNTED.map(([name, type]) => `add set ${table} ${name} { type ${type}; size 65535; flags dynamic; }`),
    ...RATED.map(([name, type]) => `add set ${table} ${name} { type ${type}; ${ratedSetForm} }`),
    ...CHAINS.map(([name, hook]) => `add chain ${table} ${name} { type ${hook}; policy accept; }`),
    ...CHAINS.map(([name]) => `flush chain ${table} ${name}`),
    ...rules(plan).map(([chain, rule]) => `add rule ${table} ${chain} ${rule}`),
  ].join('\n')}\n`
}

function rules(plan: HostTablePlan): Rule[] {
  const { link, uids, services, nextHopV6, gatewayVmService: service } = plan
  const others: Rule[] = [['forward_others', `iifname != "${link}" oifname != "${link}" drop`]]
  return [
    ...questionRules(plan),
    ...serviceRules(services, { link, hasV6: nextHopV6 !== null }),
    ...(service === null ? [] : clientRules(services, { link, port: service.port })),
    ...(plan.dropOthers ? others : []),
    // A process that escaped into a QEMU reaches neither this host nor the world.
    ['qemu', `meta skuid ${uids.min}-${uids.max} drop`],
    ...sourceRules(plan),
    // Answers to this host itself, to any of its addresses: the link's routing accepts these (vm-link.ts).
    ['answers', `iifname "${link}" ct state established,related ct direction reply ${markAnswer}`],
    ...mappedRules(plan),
  ]
}

/** Returns rules by which only VMs may query their next hops, regardless of a packet's source address. */
function questionRules({ link, nextHop, nextHopV6, namesPort }: HostTablePlan): Rule[] {
  if (namesPort === null) return []
  const nextHops = [`ip daddr ${nextHop}`, ...(nextHopV6 === null ? [] : [`ip6 daddr ${nextHopV6}`])]
  return nextHops.map(to => ['input', `iifname != "${link}" ${to} udp dport ${namesPort} drop`])
}

/** Returns rules that translate the source of packets from VMs to the world. */
function sourceRules({ link, source, sourceV6 }: HostTablePlan): Rule[] {
  const leaving = (family: 'ipv4' | 'ipv6') => `meta nfproto ${family} iifname "${link}" oifname != "${link}"`
  const rule = (family: 'ipv4' | 'ipv6', from: EgressSource | EgressSourceV6 | null): Rule[] => {
    if (from === null || from.kind === 'pool') return []
    const ip = family === 'ipv4' ? 'ip' : 'ip6'
    return [['nat', `${leaving(family)} ${from.kind === 'snat' ? `snat ${ip} to ${from.to}` : from.kind}`]]
  }
  return [...rule('ipv4', source), ...rule('ipv6', sourceV6)]
}

/**
 * Returns rules for mapped connections. Conntrack stores a connection's VM, so these rules decide only about new
 * connections. Clients keep their addresses.
 */
function mappedRules({ link, nextHop, gatewayListen: listen, gatewayVmService: service }: HostTablePlan): Rule[] {
  if (listen === null || service === null || service.address === null) return []
  const to = `tcp dport ${listen.port} dnat ip to ${service.address}:${service.port}`
  const here = listen.address === '0.0.0.0' ? 'fib daddr type local' : `ip daddr ${listen.address}`
  return [
    ['mapped_here', `ip daddr ${nextHop} ${to}`],
    ...(listen.address === null
      ? []
      : ([
          ['mapped', `iifname != "${link}" ${here} ${to}`],
          ['mapped_here', `${here} ${to}`],
          // Answers cannot be routed to a loopback address.
          ['nat', `oifname "${link}" ip saddr 127.0.0.0/8 snat ip to ${nextHop}`],
        ] satisfies Rule[])),
  ]
}
