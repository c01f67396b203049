// Limits of connections to the services of this host, as rules of the appliance's table: how many are open, and how
// many begin each second, because each costs a TLS handshake. Pure.

/** Limits of TCP connections to the appliance's own services, which the runtime does not offer. */
export type ServiceConnections = {
  readonly ports: readonly number[]
  /** From one IPv4 address, or one IPv6 network of 64 bits. */
  readonly perAddressMax: number
  /** From one IPv4 /24 or one IPv6 /48, which a single client may own. Instances, which share a network, are exempt. */
  readonly perNetworkMax: number
  readonly allMax: number
  /**
   * New connections per second of one IPv4 address or one IPv6 network of 64 bits. After a pause it may open its whole
   * share at once.
   */
  readonly newPerSecondMax: number
}

export const reset = 'counter reject with tcp reset'
const network4 = 'ip saddr and 255.255.255.0'
const network6 = 'ip6 saddr and ffff:ffff:ffff::'

/**
 * Sets of the addresses and networks that recently began connections, each with its token bucket. A full set evicts
 * none: addresses without an entry share one bucket.
 */
export const RATED = [
  ['rates_v4', 'ipv4_addr'],
  ['rates_v6', 'ipv6_addr'],
  ['rates_n4', 'ipv4_addr'],
  ['rates_n6', 'ipv6_addr'],
  ['newcomers_v4', 'ipv4_addr'],
  ['newcomers_v6', 'ipv6_addr'],
] as const

/** An entry expires a minute after its address began its last connection. */
export const ratedSetForm = 'size 65535; flags dynamic,timeout; timeout 1m;'

/**
 * How many addresses without an entry one wide network, a /16 or /32, may add. Because entries last a minute, it has at
 * most a 16th of them, so that forged sources in a few networks leave room for the addresses of all others.
 */
const newcomerLimit = 'rate over 32/second burst 2048 packets'
const wide4 = 'ip saddr and 255.255.0.0'
const wide6 = 'ip6 saddr and ffff:ffff::'

/** A /24 or /48, or all addresses without an entry, may begin as many connections as this number of addresses. */
const networkShares = 8

type Bounds = Omit<ServiceConnections, 'ports'>
type ClientRule = ['gateway_clients', string]

/**
 * Returns rules that reset a new connection beyond the rate of its address; `source` is the expression for the address.
 */
function rateRules(fresh: string, source: string, set: string, bounds: Bounds): string[] {
  const limit = limitWords(bounds, 1)
  return [
    `${fresh} update @${set} { ${source} limit ${limit} } ${reset}`,
    `${fresh} ${source} != @${set} limit ${limitWords(bounds, networkShares)} ${reset}`,
  ]
}

function networkRateRule(fresh: string, source: string, set: string, bounds: Bounds): string {
  return `${fresh} update @${set} { ${source} limit ${limitWords(bounds, networkShares)} } ${reset}`
}

/** Returns the rule that precedes those of the rate, so that a connection that it resets adds no address. */
function newcomerRule(fresh: string, source: string, set: string, newcomers: string, wide: string): string {
  return `${fresh} ${source} != @${set} update @${newcomers} { ${wide} limit ${newcomerLimit} } ${reset}`
}

function limitWords({ perAddressMax, newPerSecondMax }: Bounds, shares: number): string {
  const burst = Math.max(perAddressMax, newPerSecondMax)
  return `rate over ${shares * newPerSecondMax}/second burst ${shares * burst} packets`
}

/** Returns the limits of guests' connections that are passed on to a VM. */
export function guestClientRules(bounds: Bounds, port: number): ClientRule[] {
  const { perAddressMax, allMax } = bounds
  const fresh = `iifname @taps oifname @gateways tcp dport ${port} ct state new`
  return [
    ...rateRules(fresh, 'ip saddr', 'rates_v4', bounds).map((rule): ClientRule => ['gateway_clients', rule]),
    ['gateway_clients', `${fresh} add @connections_v4 { ip saddr ct count over ${perAddressMax} } ${reset}`],
    ['gateway_clients', `${fresh} add @connections_gateway { tcp dport ct count over ${allMax} } ${reset}`],
  ]
}

/**
 * Returns the same for clients outside, who reach the VM by `link`. An address has one share of all services together.
 */
export function clientRules(bounds: Bounds, to: To): ClientRule[] {
  const { perAddressMax, perNetworkMax, allMax } = bounds
  const fresh = `iifname != "${to.link}" oifname "${to.link}" tcp dport ${to.port} ct state new`
  return [
    ['gateway_clients', newcomerRule(fresh, 'ip saddr', 'rates_v4', 'newcomers_v4', wide4)],
    ...rateRules(fresh, 'ip saddr', 'rates_v4', bounds).map((rule): ClientRule => ['gateway_clients', rule]),
    ['gateway_clients', networkRateRule(fresh, network4, 'rates_n4', bounds)],
    ['gateway_clients', `${fresh} add @connections_v4 { ip saddr ct count over ${perAddressMax} } ${reset}`],
    ['gateway_clients', `${fresh} add @connections_n4 { ${network4} ct count over ${perNetworkMax} } ${reset}`],
    ['gateway_clients', `${fresh} add @connections_gateway { tcp dport ct count over ${allMax} } ${reset}`],
  ]
}

type To = { readonly link: string; readonly port: number }

/** Returns the rules of this host's services. `link`: interface by which packets of VMs arrive. */
export function serviceRules(
  bounds: ServiceConnections,
  { link, hasV6 }: { readonly link: string; readonly hasV6: boolean },
): ['services', string][] {
  const { ports, perAddressMax, perNetworkMax, allMax } = bounds
  if (ports.length === 0) return []
  // Excludes a proxy on this host, which acts for many clients.
  const fresh = `iifname != "lo" tcp dport { ${ports.join(', ')} } ct state new`
  const prefix = 'ip6 saddr and ffff:ffff:ffff:ffff::'
  const over = `ct count over ${perAddressMax} } ${reset}`
  const overNetwork = `ct count over ${perNetworkMax} } ${reset}`
  const [guests, others] = [`iifname "${link}"`, `iifname != "${link}"`]
  const rates = [
    newcomerRule(`${others} ${fresh}`, 'ip saddr', 'rates_v4', 'newcomers_v4', wide4),
    newcomerRule(`${others} ${fresh}`, prefix, 'rates_v6', 'newcomers_v6', wide6),
    ...rateRules(fresh, 'ip saddr', 'rates_v4', bounds),
    ...(hasV6 ? rateRules(`${guests} ${fresh}`, 'ip6 saddr', 'rates_v6', bounds) : []),
    ...rateRules(hasV6 ? `${others} ${fresh}` : fresh, prefix, 'rates_v6', bounds),
    networkRateRule(`${others} ${fresh}`, network4, 'rates_n4', bounds),
    networkRateRule(`${others} ${fresh}`, network6, 'rates_n6', bounds),
  ]
  return [
    ...rates.map((rule): ['services', string] => ['services', rule]),
    ['services', `${fresh} add @connections_v4 { ip saddr ${over}`],
    // Instances share one network; each is limited by its address.
    ...(hasV6
      ? ([
          ['services', `${guests} ${fresh} add @connections_v6 { ip6 saddr ${over}`],
          ['services', `${others} ${fresh} add @connections_v6 { ${prefix} ${over}`],
        ] satisfies ['services', string][])
      : [['services', `${fresh} add @connections_v6 { ${prefix} ${over}`] satisfies ['services', string]]),
    ['services', `${others} ${fresh} add @connections_n4 { ${network4} ${overNetwork}`],
    ['services', `${others} ${fresh} add @connections_n6 { ${network6} ${overNetwork}`],
    ['services', `${fresh} ct count over ${allMax} ${reset}`],
  ]
}
