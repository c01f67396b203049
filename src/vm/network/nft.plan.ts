// Text of the ruleset in the namespace of VMs, applied as one transaction by `nft --file -`. Pure. This host's own
// table: host-table.plan.ts.
//
// Filters and counts all traffic of VMs. Interfaces there are taps and the link to this host, which sends its own
// packets from the next hop of VMs, and reaches VMs as other hosts do.
//
// Sets and maps with the tap as key dispatch packets, so the number of rules does not depend on the number of VMs.
// Names are tap names, never user input. Chains are flushed and rewritten; quotas and counters keep their counts.

import { linkNames } from '../../base/link-names.ts'
import type { VmNetworkKind } from '../../store/ledger/vm.table.ts'
import { arpLines, unknownTap } from './arp.plan.ts'
import { chargeRules } from './charge.plan.ts'
import {
  atRefusalRate,
  EGRESS_CHAINS,
  EGRESS_CHAINS_V6,
  EGRESS_SETS,
  type EgressPlan,
  egressElements,
  egressRules,
} from './egress.plan.ts'
import { type EgressNames, nameSetLines, type namesChain } from './egress-names.plan.ts'
import { EGRESS_SETS_V6, type EgressPlanV6, ENTRY_RULES_V6 } from './egress-v6.plan.ts'
import { type Element, elementLines } from './nft-elements.plan.ts'
import { guestClientRules, RATED, ratedSetForm, type ServiceConnections } from './nft-services.plan.ts'
import { PUBLIC_RATED, publicRules } from './published/rules.plan.ts'

export type NftVm = {
  readonly tap: string
  readonly mac: string
  /** IPv4. Null if the VM has none. */
  readonly address: string | null
  /** Null if the VM has none; then its IPv6 packets are dropped. */
  readonly addressV6: string | null
  /** Lifetime egress cap of both families together, in bytes. */
  readonly limitBytes: number
  /** Bytes counted so far, used if the kernel does not have the object (first start, or a flushed ruleset). */
  readonly usedBytes: number
  /** Bytes for answers to SSH from outside once the cap is spent, so that the owner can rescue the work. */
  readonly rescueLimitBytes: number
  /** See `usedBytes`. */
  readonly rescueUsedBytes: number
  /**
   * Answers of the public port: the owner's part of the cap for them, and bytes used of it. Limit 0: the port is
   * closed. Absent if the VM has never published a port.
   */
  readonly published?: { readonly limitBytes: number; readonly usedBytes: number }
  /** Whether the VM has proved its identity. Until then only the host's probe of its SSH server passes, uncounted. */
  readonly opened: boolean
  readonly network: VmNetworkKind
}

/** Addresses of this host that accept connections for the gateway in a VM. */
export type GatewayListen = {
  /** IPv4 address of this host, `0.0.0.0` for all, null for none. Instances always reach their next hop. */
  readonly address: string | null
  readonly port: number
}

/** The gateway's VMs. All listen on one port; one of them gets new connections. */
export type GatewayVmService = {
  /** TCP port of the gateway in each VM. */
  readonly port: number
  /** IPv4 address of the VM that gets connections to `GatewayListen`. Null if there is none. */
  readonly address: string | null
  /** TCP destinations of its VMs. The next hop of VMs opens that port of this host; its other addresses stay closed. */
  readonly upstreams: readonly { readonly address: string; readonly port: number }[]
}

export type NftPlan = {
  readonly table: string
  /** Prefix of VMs' taps. Packets of other taps with this prefix are dropped. */
  readonly tapPrefix: string
  /** MTU of the taps. Larger packets would leave as fragments, with more bytes than were charged. */
  readonly mtuBytes: number
  /** VMs' IPv4 pool. Null if new VMs get no IPv4 address. */
  readonly pool: string | null
  /** Null if no VM has IPv6. */
  readonly v6: EgressPlanV6 | null
  /** Networks that this host is in, of either family. */
  readonly ownNetworks: readonly string[]
  /** Addresses of this host, of either family, besides the next hop of VMs. */
  readonly hostAddresses: readonly string[]
  readonly egress: EgressPlan
  /** Null if VMs reach the world without a list of names. */
  readonly names: EgressNames | null
  /** Limits of guests' connections that are passed on to the gateway's VM. */
  readonly services: Omit<ServiceConnections, 'ports'>
  /** This host's address for VMs: their default route. */
  readonly nextHop: string
  /** TCP ports of the next hop for guests. */
  readonly nextHopPorts: readonly number[]
  /** TCP port of the next hop for snapshots of opened VMs: uncounted, and open when the cap is spent. Null for none. */
  readonly snapshotPort: number | null
  /** TCP port of opened VMs with `published` that all may reach, beside 22. Null for none. */
  readonly publicPort: number | null
  /** TCP port of the next hop for VMs of network `fetch`, the only one they reach. Null if there is none. */
  readonly fetchPort: number | null
  /** Null if this host has none. */
  readonly gatewayListen: GatewayListen | null
  /** Null if VMs of network `gateway` are closed. */
  readonly gatewayVmService: GatewayVmService | null
  readonly vms: readonly NftVm[]
  /** Names of kernel objects to remove. */
  readonly removed: { readonly quotas: readonly string[]; readonly counters: readonly string[] }
}

/** Returns the names of a VM's objects. */
export function quotaNames(tap: string) {
  return { cap: tap, rescue: `${tap}_rescue`, published: `${tap}_published` } as const
}

/** Returns the tap of a quota. */
export function tapOfQuota(name: string): string {
  return name.replace(/_(rescue|published)$/, '')
}

/** Returns the ruleset. Adding is idempotent; `removed` must name only objects that exist. */
export function rulesetText(plan: NftPlan): string {
  const table = `inet ${plan.table}`
  const collections = [...COLLECTIONS, ...(plan.v6 === null ? [] : EGRESS_SETS_V6)]
  const chains = [...CHAINS, ...(plan.v6 === null ? [] : CHAINS_V6)]
  return `${[
    `add table ${table}`,
    ...collections.map(([kind, name, type]) => `add ${kind} ${table} ${name} { type ${type}; }`),
    // Never flushed, because they hold counts.
    ...COUNTED.map(([name, type]) => `add set ${table} ${name} { type ${type}; size 65535; flags dynamic; }`),
    ...[...RATED.slice(0, 1), ...PUBLIC_RATED].map(
      ([name, type]) => `add set ${table} ${name} { type ${type}; ${ratedSetForm} }`,
    ),
    ...FLEETING.map(
      ([name, timeout]) =>
        `add set ${table} ${name} { type ifname; size 65535; flags dynamic,timeout; timeout ${timeout}; }`,
    ),
    ...chains.map(
      ([name, hook]) => `add chain ${table} ${name}${hook === null ? '' : ` { type ${hook}; policy accept; }`}`,
    ),
    ...chains.map(([name]) => `flush chain ${table} ${name}`),
    ...(plan.names === null ? [] : nameSetLines(table, plan.names)),
    ...collections.map(([kind, name]) => `flush ${kind} ${table} ${name}`),
    ...FLEETING.map(([name]) => `flush set ${table} ${name}`),
    ...plan.removed.quotas.map(name => `delete quota ${table} ${name}`),
    ...plan.removed.counters.map(name => `delete counter ${table} ${name}`),
    // `delete` alone fails if there is none, and only packets create them.
    ...plan.removed.counters
      .filter(name => name.length <= tapCharsMax)
      .flatMap(tap =>
        FLOWS.flatMap(([set]) => ['add', 'delete'].map(verb => `${verb} element ${table} ${set} { "${tap}" }`)),
      ),
    ...plan.vms.flatMap(vm => objectLines(table, vm)),
    ...elementLines(table, [
      ...plan.vms.flatMap(vm => vmElements(vm, plan.v6 !== null)),
      ...(plan.gatewayVmService?.upstreams ?? []).map(
        ({ address, port }): Element => ['gateway_upstreams', `${address} . ${port}`],
      ),
      ...hostElements(plan),
      ...egressElements({ ...plan, ...plan.egress }),
    ]),
    ...rules(plan).map(([chain, rule]) => `add rule ${table} ${chain} ${rule}`),
    ...arpLines(plan),
  ].join('\n')}\n`
}

const COLLECTIONS = [
  ['set', 'taps', 'ifname'],
  ['set', 'opened', 'ifname'],
  ['set', 'fetching', 'ifname'],
  // VMs of network `gateway`: all, and the opened ones.
  ['set', 'gateways', 'ifname'],
  ['set', 'serving', 'ifname'],
  ['set', 'gateway_upstreams', 'ipv4_addr . inet_service'],
  // Addresses of the opened ones.
  ['set', 'gateway_addresses', 'ipv4_addr'],
  ['set', 'guests', 'ifname . ether_addr . ipv4_addr'],
  ['map', 'quotas', 'ifname : quota'],
  ['map', 'rescues', 'ifname : quota'],
  // Opened VMs whose public port is open, and what its answers may use.
  ['set', 'publishing', 'ifname'],
  ['map', 'published', 'ifname : quota'],
  ['map', 'counters', 'ifname : counter'],
  ...EGRESS_SETS,
] as const

/** Sets of taps with a timeout. */
const FLEETING = [
  // Taps whose cap is spent. Dropping their packets here is cheap.
  ['closed', '5s'],
  // Taps that recently got an ICMP refusal.
  ['refusals', '1m'],
] as const

/** Flows of each VM. */
const FLOWS = [
  ['flow_rates', 'ifname'],
  ['flow_counts', 'ifname'],
  ['public_counts', 'ifname'],
] as const
/** IFNAMSIZ without the final NUL. */
const tapCharsMax = 15

const COUNTED = [
  ['connections_v4', 'ipv4_addr'],
  // Connections to the gateway's VMs, of all guests together.
  ['connections_gateway', 'inet_service'],
  ['public_v4', 'ifname . ipv4_addr'],
  ['public_v6', 'ifname . ipv6_addr'],
  ...FLOWS,
] as const

const CHAINS = [
  // Before defragmentation (-400) and connection tracking (-200).
  ['entry', 'filter hook prerouting priority -450'],
  // After both.
  ['charge', 'filter hook prerouting priority mangle'],
  ['input', 'filter hook input priority filter'],
  ['forward', 'filter hook forward priority filter'],
  ['output', 'filter hook output priority filter'],
  // Maps connections of guests for the gateway to its VM.
  ['mapped', 'nat hook prerouting priority dstnat'],
  ['gateway_clients', 'filter hook forward priority filter - 20'],
  // Reached by jumps only.
  ...EGRESS_CHAINS.map(name => [name, null] as const),
  ['from_vm', null],
  ['over', null],
  ['flows', null],
  ['spent', null],
  ['rescue', null],
  ['refuse_all', null],
] as const

const CHAINS_V6 = EGRESS_CHAINS_V6.map(name => [name, null] as const)

function objectLines(table: string, vm: NftVm): string[] {
  const { cap, rescue, published } = quotaNames(vm.tap)
  const quota = (name: string, limitBytes: number, usedBytes: number) =>
    `add quota ${table} ${name} { over ${limitBytes} bytes used ${usedBytes} bytes; }`
  return [
    quota(cap, vm.limitBytes, vm.usedBytes),
    quota(rescue, vm.rescueLimitBytes, vm.rescueUsedBytes),
    ...(vm.published === undefined ? [] : [quota(published, vm.published.limitBytes, vm.published.usedBytes)]),
    `add counter ${table} ${vm.tap}`,
  ]
}

function vmElements(vm: NftVm, hasV6: boolean): Element[] {
  const { cap, rescue, published } = quotaNames(vm.tap)
  const isPublishing = vm.opened && vm.published !== undefined && vm.published.limitBytes > 0
  return [
    ['taps', `"${vm.tap}"`],
    ...(vm.network === 'gateway' ? [['gateways', `"${vm.tap}"`] satisfies Element] : []),
    ...(vm.opened ? [[openedSets[vm.network], `"${vm.tap}"`] satisfies Element] : []),
    ...(vm.opened && vm.network === 'gateway' && vm.address !== null
      ? [['gateway_addresses', vm.address] satisfies Element]
      : []),
    ...(vm.address === null ? [] : [['guests', `"${vm.tap}" . ${vm.mac} . ${vm.address}`] satisfies Element]),
    ...(hasV6 && vm.addressV6 !== null
      ? [['guests_v6', `"${vm.tap}" . ${vm.mac} . ${vm.addressV6}`] satisfies Element]
      : []),
    ['quotas', `"${vm.tap}" : "${cap}"`],
    ['rescues', `"${vm.tap}" : "${rescue}"`],
    ...(vm.published === undefined ? [] : [['published', `"${vm.tap}" : "${published}"`] satisfies Element]),
    ...(isPublishing ? [['publishing', `"${vm.tap}"`] satisfies Element] : []),
    ['counters', `"${vm.tap}" : "${vm.tap}"`],
  ]
}

const openedSets = { world: 'opened', fetch: 'fetching', gateway: 'serving' } as const satisfies Record<
  VmNetworkKind,
  string
>

/** Returns the taps of the probes of other firewalls (firewall-probe/): the daemon's and doctor's. */
export function probeTaps(tapPrefix: string): readonly [daemon: string, doctor: string] {
  return [`${tapPrefix}probe`, `${tapPrefix}doctor`]
}

/** Returns the addresses of this host, even those that an entry of the configuration opens. */
function hostElements({ nextHop, hostAddresses, v6 }: NftPlan): Element[] {
  const all = new Set([nextHop, ...(v6 === null ? [] : [v6.nextHop]), ...hostAddresses])
  return [...all].flatMap((address): Element[] =>
    address.includes(':') ? (v6 === null ? [] : [['host_addresses_v6', address]]) : [['host_addresses', address]],
  )
}

type Rule = [chain: (typeof CHAINS | typeof CHAINS_V6)[number][0] | typeof namesChain, rule: string]

function rules(plan: NftPlan): Rule[] {
  const { nextHop, nextHopPorts, pool, gatewayVmService, egress, v6 } = plan
  const publicPorts = plan.publicPort === null ? [] : [plan.publicPort]
  const names = plan.names === null ? null : { nextHop, nextHopV6: v6?.nextHop ?? null, port: plan.names.port }
  const reached = { nextHop, nextHopPorts, pool, v6, names, publicPorts }
  const withV6 = (rulesOf: (v6: EgressPlanV6) => Rule[]): Rule[] => (v6 === null ? [] : rulesOf(v6))
  const probes = `{ ${probeTaps(plan.tapPrefix).join(', ')} }`
  const nextHops = [`ip daddr ${nextHop}`, ...(v6 === null ? [] : [`ip6 daddr ${v6.nextHop}`])]
  return [
    // Most packets of most VMs pass these rules, and each look-up in a set costs about 0.1 us.
    ['entry', 'iifname @taps goto from_vm'],
    ['forward', `iifname @opened oifname "${linkNames(plan.tapPrefix).inside}" accept`],
    // Only the daemon and doctor send through these, to this host. No guest reaches them.
    ['entry', `iifname ${probes} accept`],
    ['forward', `iifname ${probes} oifname "${linkNames(plan.tapPrefix).inside}" accept`],
    // A tap that belongs to no VM.
    ['entry', `${unknownTap('i', plan.tapPrefix)} drop`],
    ['forward', `${unknownTap('o', plan.tapPrefix)} drop`],
    ['forward', 'iifname @opened oifname != @taps accept'],
    // A guest sends only from its own addresses.
    ['from_vm', v6 === null ? 'meta nfproto != ipv4 drop' : 'meta nfproto != { ipv4, ipv6 } drop'],
    ['from_vm', 'iifname . ether saddr . ip saddr != @guests drop'],
    // Defragmentation uses memory that all share, and would send other fragments than were charged.
    ['from_vm', 'ip frag-off & 0x3fff != 0 drop'],
    ...withV6(() => ENTRY_RULES_V6.map(rule => ['from_vm', rule])),
    ['from_vm', `meta length > ${plan.mtuBytes} drop`],
    ...snapshotMatches(plan).map((match): Rule => ['from_vm', `${match} accept`]),
    // The cap is spent: only possible answers within SSH pass.
    ['from_vm', 'iifname @closed goto over'],
    ['from_vm', 'iifname @opened goto egress'],
    ['over', 'iifname @opened tcp sport 22 goto egress'],
    ['over', 'iifname != @opened drop'],
    ['over', 'goto refuse_all'],
    // A program in the VM fails with an error instead of waiting: a connection that is open ends, a new one is refused.
    ['refuse_all', `tcp flags & (syn | ack) != syn ${atRefusalRate} reject with tcp reset`],
    ['refuse_all', 'goto refuse'],
    ...gatewayVmRules(plan),
    // Before a VM is opened it may answer the host's probe of its SSH server, uncounted.
    ...nextHops.map((to): Rule => ['from_vm', `iifname != @fetching ${to} tcp sport 22 accept`]),
    ...nextHops.map(
      (to): Rule => [
        'forward',
        `iifname @taps iifname != @fetching ${to} ct state established ct direction reply tcp sport 22 accept`,
      ],
    ),
    ...fetchRules(plan),
    ['from_vm', 'iifname != @fetching drop'],
    ...egressRules({ ...reached, servicePort: gatewayVmService?.port ?? null }),
    ...chargeRules(egress, snapshotMatches(plan), plan.publicPort),
    // No program here offers a service; this host sends forwarded packets, and the kernel's refusals and path MTU
    // messages.
    ['input', 'drop'],
    ['output', 'oifname @taps oifname != @opened drop'],
    // Other guests, and destinations that are closed to all.
    ['forward', 'iifname @taps drop'],
    // Packets for the address of a VM that has ended would return to this host.
    ['forward', 'oifname != @taps drop'],
    ...nextHops.map(
      (to): Rule => ['forward', `oifname @taps oifname != @opened ${to.replace('daddr', 'saddr')} tcp dport 22 accept`],
    ),
    ['forward', 'oifname @taps oifname != @opened drop'],
    // From outside and from this host, a guest is reachable only by SSH, and at published ports.
    ['forward', 'oifname @taps ct state established,related accept'],
    ['forward', 'oifname @taps tcp dport 22 accept'],
    ...publicPorts.flatMap(port => publicRules(port, v6 !== null)),
    ['forward', 'oifname @taps icmp type echo-request accept'],
    ...withV6(() => [['forward', 'oifname @taps meta nfproto ipv6 icmpv6 type echo-request accept']]),
    ['forward', 'drop'],
  ]
}

/**
 * Returns the rules of VMs of network `gateway`. Clients reach their single port, from outside, from opened guests and
 * from this host; the VMs reach only their upstreams. A connection stays with the VM that it was mapped to while that
 * VM is opened, and with an upstream that has left the set. Before a VM is opened only this host reaches its port.
 * `from_vm` cannot determine yet who began a connection, so it passes packets on to `forward`. These rules come first
 * in each chain; no later rule sees packets of these VMs.
 */
function gatewayVmRules(plan: NftPlan): Rule[] {
  const { nextHop, gatewayVmService: service } = plan
  if (service === null) {
    return [
      ['from_vm', 'iifname @gateways drop'],
      ['forward', 'oifname @gateways drop'],
      ['output', 'oifname @gateways drop'],
    ]
  }
  const { port } = service
  const answer = `tcp sport ${port} ct state established ct direction reply`
  return [
    ['from_vm', `iifname @gateways iifname != @serving ip daddr ${nextHop} tcp sport ${port} accept`],
    ['from_vm', 'iifname @gateways iifname != @serving drop'],
    ['from_vm', 'iifname @serving accept'],
    // Path MTU messages, for example.
    ['output', 'oifname @serving ct state related accept'],
    ['output', 'oifname @gateways drop'],
    ['forward', `iifname @gateways oifname != @taps ip daddr ${nextHop} ${answer} accept`],
    ['forward', `oifname @gateways iifname != @taps ip saddr ${nextHop} tcp dport ${port} accept`],
    ['forward', 'oifname @serving iifname @taps iifname != @opened drop'],
    ['forward', `oifname @serving tcp dport ${port} ct direction original accept`],
    ['forward', 'oifname @serving iifname != @taps ct state established,related accept'],
    ['forward', 'oifname @gateways drop'],
    ['forward', 'iifname @serving oifname @taps oifname != @opened drop'],
    ['forward', `iifname @serving ${answer} accept`],
    ['forward', 'iifname @serving oifname @taps drop'],
    ['forward', 'iifname @serving ct state established ct direction original accept'],
    ['forward', `iifname @serving ip daddr != ${nextHop} ip daddr @host_addresses drop`],
    ['forward', 'iifname @serving ct state new ip daddr . tcp dport @gateway_upstreams accept'],
    ['forward', 'iifname @gateways drop'],
    ...mappedRules(plan, service),
    ...guestClientRules(plan.services, port),
  ]
}

/**
 * Returns rules for mapped connections. Conntrack stores a connection's VM, so these rules decide only about new
 * connections. Clients keep their addresses.
 */
function mappedRules({ nextHop, gatewayListen: listen }: NftPlan, { port, address }: GatewayVmService): Rule[] {
  if (listen === null || address === null) return []
  return [['mapped', `iifname @opened ip daddr ${nextHop} tcp dport ${listen.port} dnat ip to ${address}:${port}`]]
}

/** Returns matches for packets of opened VMs to the port of snapshots, which leave no host. */
function snapshotMatches({ nextHop, v6, pool, snapshotPort }: NftPlan): string[] {
  if (snapshotPort === null) return []
  // Where VMs have both families, they use IPv4.
  const to = pool !== null ? `ip daddr ${nextHop}` : v6 === null ? null : `ip6 daddr ${v6.nextHop}`
  return to === null ? [] : [`iifname @opened ${to} tcp dport ${snapshotPort}`]
}

/**
 * Returns the rules of VMs of network `fetch`, which reach one port of the host and get answers; `forward` sees no
 * other packets of them.
 */
function fetchRules({ nextHop, fetchPort }: NftPlan): Rule[] {
  if (fetchPort === null) return [['from_vm', 'iifname @fetching drop']]
  const answer = `ip saddr ${nextHop} tcp sport ${fetchPort} ct state established ct direction reply`
  return [
    ['from_vm', `iifname @fetching ip daddr != ${nextHop} drop`],
    ['from_vm', `iifname @fetching tcp dport != ${fetchPort} drop`],
    ['from_vm', 'iifname @fetching meta l4proto != tcp drop'],
    ['forward', `iifname @fetching ip daddr ${nextHop} tcp dport ${fetchPort} accept`],
    ['forward', `oifname @fetching iifname != @taps ${answer} accept`],
  ]
}
