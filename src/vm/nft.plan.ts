// The appliance's whole nftables ruleset as one transaction's text. Pure; applied by one `nft --file -`.
//
// Dispatch is by sets and maps keyed on the tap, so the rules stay the same however many VMs there are. Names are tap names,
// never user input. Chains are flushed and written again; quotas and counters stay, with what they have counted.

export type NftVm = {
  readonly tap: string
  readonly mac: string
  readonly address: string
  /** Lifetime egress cap. */
  readonly limitBytes: number
  /** Counted before; matters only when the object is new to the kernel (first start, or someone flushed the ruleset). */
  readonly usedBytes: number
}

export type NftPlan = {
  readonly table: string
  readonly gateway: string
  /** TCP ports of the gateway address that guests may reach. */
  readonly gatewayPorts: readonly number[]
  readonly vms: readonly NftVm[]
  /** Taps whose objects are in the kernel and are to go. */
  readonly removed: readonly string[]
}

/** Ruleset text. Adding is idempotent; `removed` must name only objects that exist. */
export function rulesetText(plan: NftPlan): string {
  const table = `inet ${plan.table}`
  return `${[
    `add table ${table}`,
    ...COLLECTIONS.map(([kind, name, type]) => `add ${kind} ${table} ${name} { type ${type}; }`),
    ...CHAINS.map(([name, hook]) => `add chain ${table} ${name} { type ${hook}; policy accept; }`),
    ...CHAINS.map(([name]) => `flush chain ${table} ${name}`),
    ...COLLECTIONS.map(([kind, name]) => `flush ${kind} ${table} ${name}`),
    ...plan.removed.flatMap(tap => [`delete quota ${table} ${tap}`, `delete counter ${table} ${tap}`]),
    ...plan.vms.flatMap(vm => vmLines(table, vm)),
    ...rules(plan).map(([chain, rule]) => `add rule ${table} ${chain} ${rule}`),
  ].join('\n')}\n`
}

const COLLECTIONS = [
  ['set', 'taps', 'ifname'],
  ['set', 'guests', 'ifname . ether_addr . ipv4_addr'],
  ['map', 'quotas', 'ifname : quota'],
  ['map', 'counters', 'ifname : counter'],
] as const

const CHAINS = [
  ['guard', 'filter hook prerouting priority raw'],
  ['input', 'filter hook input priority filter'],
  ['forward', 'filter hook forward priority filter'],
  ['nat', 'nat hook postrouting priority srcnat'],
] as const

function vmLines(table: string, vm: NftVm): string[] {
  return [
    `add quota ${table} ${vm.tap} { over ${vm.limitBytes} bytes used ${vm.usedBytes} bytes; }`,
    `add counter ${table} ${vm.tap}`,
    `add element ${table} taps { "${vm.tap}" }`,
    `add element ${table} guests { "${vm.tap}" . ${vm.mac} . ${vm.address} }`,
    `add element ${table} quotas { "${vm.tap}" : "${vm.tap}" }`,
    `add element ${table} counters { "${vm.tap}" : "${vm.tap}" }`,
  ]
}

/** The bit of a packet's mark that says that we have accepted it: strongroom-guard.nft drops packets of guests without it. */
export const acceptedMark = 0x0800_0000

const acceptGuest = `meta mark set meta mark | 0x${acceptedMark.toString(16).padStart(8, '0')} accept`

function rules(plan: NftPlan): [chain: (typeof CHAINS)[number][0], rule: string][] {
  return [
    // A guest speaks only as itself, and only IPv4; all that it sends counts, to the host too.
    ['guard', 'iifname != @taps accept'],
    ['guard', 'meta nfproto != ipv4 drop'],
    ['guard', 'iifname . ether saddr . ip saddr != @guests drop'],
    ['guard', 'counter name iifname map @counters'],
    ['guard', 'quota name iifname map @quotas drop'],
    // A guest reaches the gateway on the host, and may reply to what the host began (the readiness probe). Nothing else.
    ['input', `iifname @taps ct state established,related ${acceptGuest}`],
    ...plan.gatewayPorts.map(
      port => ['input', `iifname @taps ip daddr ${plan.gateway} tcp dport ${port} ${acceptGuest}`] as ['input', string],
    ),
    ['input', 'iifname @taps drop'],
    // Guests have no path to each other; the world reaches a guest by SSH only.
    ['forward', 'iifname @taps oifname @taps drop'],
    ['forward', `iifname @taps ${acceptGuest}`],
    ['forward', `oifname @taps ct state established,related ${acceptGuest}`],
    ['forward', `oifname @taps tcp dport 22 ${acceptGuest}`],
    ['forward', `oifname @taps icmp type echo-request ${acceptGuest}`],
    ['forward', 'oifname @taps drop'],
    ['nat', 'iifname @taps oifname != @taps masquerade'],
  ]
}
