// The appliance's whole nftables ruleset as one transaction's text. Pure; applied by one `nft --file -`.
//
// Dispatch is by sets and maps keyed on the tap, so the rules stay the same however many VMs there are. Names are tap names,
// never user input. Chains are flushed and written again; quotas and counters stay, with what they have counted.

import type { VmNetworkKind } from '../store/ledger/vm.table.ts'

export type NftVm = {
  readonly tap: string
  readonly mac: string
  readonly address: string
  /** Lifetime egress cap. */
  readonly limitBytes: number
  /** Counted before; matters only when the object is new to the kernel (first start, or someone flushed the ruleset). */
  readonly usedBytes: number
  /** What answers to SSH from outside may take once the cap is spent, so that its owner can rescue the work. */
  readonly rescueLimitBytes: number
  /** As `usedBytes`. */
  readonly rescueUsedBytes: number
  /** Whether it has proved what it is. Before that nothing passes but the host's own look at its SSH server, and nothing counts. */
  readonly opened: boolean
  readonly network: VmNetworkKind
}

/** Bounds on TCP connections to the appliance's own services, which the runtime has not. */
export type ServiceConnections = {
  readonly ports: readonly number[]
  /** From one IPv4 address, or one IPv6 network of 64 bits. */
  readonly perAddressMax: number
  readonly allMax: number
}

export type NftPlan = {
  readonly table: string
  readonly services: ServiceConnections
  /** Users that QEMU runs as. None of them has business on a network: a guest's traffic comes out of its tap. */
  readonly uids: { readonly min: number; readonly max: number }
  readonly gateway: string
  /** TCP ports of the gateway address that guests may reach. */
  readonly gatewayPorts: readonly number[]
  /** TCP port of the gateway address that VMs of network `fetch` may reach, and nothing else; null: there is none. */
  readonly fetchPort: number | null
  readonly vms: readonly NftVm[]
  /** Names of what is in the kernel and is to go. */
  readonly removed: { readonly quotas: readonly string[]; readonly counters: readonly string[] }
}

/** The names of a VM's objects. */
export function quotaNames(tap: string): { readonly cap: string; readonly rescue: string } {
  return { cap: tap, rescue: `${tap}_rescue` }
}

/** The tap whose quota this is: the ledger has one name for both. */
export function tapOfQuota(name: string): string {
  return name.replace(/_rescue$/, '')
}

/** Ruleset text. Adding is idempotent; `removed` must name only objects that exist. */
export function rulesetText(plan: NftPlan): string {
  const table = `inet ${plan.table}`
  return `${[
    `add table ${table}`,
    ...COLLECTIONS.map(([kind, name, type]) => `add ${kind} ${table} ${name} { type ${type}; }`),
    // Never flushed: they hold what is being counted.
    ...COUNTED.map(([name, type]) => `add set ${table} ${name} { type ${type}; size 65535; flags dynamic; }`),
    ...CHAINS.map(
      ([name, hook]) => `add chain ${table} ${name}${hook === null ? '' : ` { type ${hook}; policy accept; }`}`,
    ),
    ...CHAINS.map(([name]) => `flush chain ${table} ${name}`),
    ...COLLECTIONS.map(([kind, name]) => `flush ${kind} ${table} ${name}`),
    ...plan.removed.quotas.map(name => `delete quota ${table} ${name}`),
    ...plan.removed.counters.map(name => `delete counter ${table} ${name}`),
    ...plan.vms.flatMap(vm => vmLines(table, vm)),
    ...rules(plan).map(([chain, rule]) => `add rule ${table} ${chain} ${rule}`),
  ].join('\n')}\n`
}

const COLLECTIONS = [
  ['set', 'taps', 'ifname'],
  ['set', 'opened', 'ifname'],
  ['set', 'fetching', 'ifname'],
  ['set', 'serving', 'ifname'],
  ['set', 'guests', 'ifname . ether_addr . ipv4_addr'],
  ['map', 'quotas', 'ifname : quota'],
  ['map', 'rescues', 'ifname : quota'],
  ['map', 'counters', 'ifname : counter'],
] as const

const COUNTED = [
  ['connections_v4', 'ipv4_addr'],
  ['connections_v6', 'ipv6_addr'],
] as const

const CHAINS = [
  ['guard', 'filter hook prerouting priority raw'],
  // After connections are tracked, which is at -200.
  ['answers', 'filter hook prerouting priority mangle'],
  ['input', 'filter hook input priority filter'],
  ['forward', 'filter hook forward priority filter'],
  ['output', 'filter hook output priority filter'],
  ['services', 'filter hook input priority filter - 20'],
  ['qemu', 'filter hook output priority filter'],
  ['nat', 'nat hook postrouting priority srcnat'],
  // Only what `answers` sends there.
  ['spent', null],
  ['rescue', null],
] as const

function vmLines(table: string, vm: NftVm): string[] {
  const { cap, rescue } = quotaNames(vm.tap)
  return [
    `add quota ${table} ${cap} { over ${vm.limitBytes} bytes used ${vm.usedBytes} bytes; }`,
    `add quota ${table} ${rescue} { over ${vm.rescueLimitBytes} bytes used ${vm.rescueUsedBytes} bytes; }`,
    `add counter ${table} ${vm.tap}`,
    `add element ${table} taps { "${vm.tap}" }`,
    ...(vm.opened ? [`add element ${table} ${openedSets[vm.network]} { "${vm.tap}" }`] : []),
    `add element ${table} guests { "${vm.tap}" . ${vm.mac} . ${vm.address} }`,
    `add element ${table} quotas { "${vm.tap}" : "${cap}" }`,
    `add element ${table} rescues { "${vm.tap}" : "${rescue}" }`,
    `add element ${table} counters { "${vm.tap}" : "${vm.tap}" }`,
  ]
}

const openedSets = { world: 'opened', fetch: 'fetching', gateway: 'serving' } as const satisfies Record<
  VmNetworkKind,
  string
>

/** The bit of a packet's mark that says that we have accepted it: strongroom-guard.nft drops packets of guests without it. */
export const acceptedMark = 0x0800_0000

const acceptGuest = `meta mark set meta mark | 0x${acceptedMark.toString(16).padStart(8, '0')} accept`

type Rule = [chain: (typeof CHAINS)[number][0], rule: string]

function rules(plan: NftPlan): Rule[] {
  return [
    // A guest speaks only as itself, and only IPv4.
    ['guard', 'iifname != @taps accept'],
    ['guard', 'meta nfproto != ipv4 drop'],
    ['guard', 'iifname . ether saddr . ip saddr != @guests drop'],
    // Before it is opened it may answer the host's look at its SSH server, which `input` lets in only as an answer. It counts for nothing.
    ['guard', `iifname != @opened iifname != @fetching ip daddr ${plan.gateway} tcp sport 22 accept`],
    ...fetchRules(plan),
    ['guard', 'iifname != @opened iifname != @fetching drop'],
    ...capRules(),
    ['input', `iifname @taps iifname != @opened ct state established ct direction reply tcp sport 22 ${acceptGuest}`],
    ['input', 'iifname @taps iifname != @opened drop'],
    // A guest reaches the gateway on the host, and may reply to what the host began (the readiness probe). Nothing else.
    ['input', `iifname @taps ct state established,related ${acceptGuest}`],
    ...plan.gatewayPorts.map(
      port => ['input', `iifname @taps ip daddr ${plan.gateway} tcp dport ${port} ${acceptGuest}`] as ['input', string],
    ),
    ['input', 'iifname @taps drop'],
    ['output', 'oifname @taps oifname != @opened tcp dport 22 accept'],
    ['output', 'oifname @taps oifname != @opened drop'],
    ['forward', 'iifname @taps iifname != @opened drop'],
    ['forward', 'oifname @taps oifname != @opened drop'],
    // Guests have no path to each other; the world reaches a guest by SSH only.
    ['forward', 'iifname @taps oifname @taps drop'],
    ['forward', `iifname @taps ${acceptGuest}`],
    ['forward', `oifname @taps ct state established,related ${acceptGuest}`],
    ['forward', `oifname @taps tcp dport 22 ${acceptGuest}`],
    ['forward', `oifname @taps icmp type echo-request ${acceptGuest}`],
    ['forward', 'oifname @taps drop'],
    ['nat', 'iifname @taps oifname != @taps masquerade'],
    // Whoever has escaped from a VM into its QEMU reaches neither this host nor the world.
    ['qemu', `meta skuid ${plan.uids.min}-${plan.uids.max} drop`],
    ...serviceRules(plan.services),
  ]
}

/** What fetches reaches the one port of the host, and gets answers. `guard` comes first; what `input` and `output` say later never sees it. */
function fetchRules({ gateway, fetchPort }: NftPlan): Rule[] {
  if (fetchPort === null) return [['guard', 'iifname @fetching drop']]
  const answer = `ip saddr ${gateway} tcp sport ${fetchPort} ct state established ct direction reply`
  return [
    ['guard', `iifname @fetching ip daddr != ${gateway} drop`],
    ['guard', `iifname @fetching tcp dport != ${fetchPort} drop`],
    ['guard', 'iifname @fetching meta l4proto != tcp drop'],
    ['input', `iifname @fetching ip daddr ${gateway} tcp dport ${fetchPort} ${acceptGuest}`],
    ['output', `oifname @fetching ${answer} accept`],
  ]
}

/**
 * All that a guest sends counts, to the host too, and what goes over the cap is dropped: but for answers within SSH connections that
 * somebody else began, which have an allowance of their own. Who began a connection is known only once it is tracked, so what may be such
 * an answer is charged later than the rest.
 */
function capRules(): Rule[] {
  return [
    ['guard', 'counter name iifname map @counters'],
    ['guard', 'tcp sport 22 accept'],
    // All else, and what has no whole TCP header.
    ['guard', 'quota name iifname map @quotas drop'],
    ['answers', 'iifname @opened tcp sport 22 quota name iifname map @quotas goto spent'],
    ['spent', 'ct state established ct direction reply goto rescue'],
    ['spent', 'drop'],
    ['rescue', 'quota name iifname map @rescues drop'],
  ]
}

function serviceRules({ ports, perAddressMax, allMax }: ServiceConnections): ['services', string][] {
  if (ports.length === 0) return []
  // A proxy on this host speaks for many clients.
  const fresh = `iifname != "lo" tcp dport { ${ports.join(', ')} } ct state new`
  const reset = 'counter reject with tcp reset'
  const prefix = 'ip6 saddr and ffff:ffff:ffff:ffff::'
  return [
    ['services', `${fresh} add @connections_v4 { ip saddr ct count over ${perAddressMax} } ${reset}`],
    ['services', `${fresh} add @connections_v6 { ${prefix} ct count over ${perAddressMax} } ${reset}`],
    ['services', `${fresh} ct count over ${allMax} ${reset}`],
  ]
}
