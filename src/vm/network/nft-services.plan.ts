// Bounds on connections to the services of this host, as rules of the appliance's table. Pure.

/** Bounds on TCP connections to the appliance's own services, which the runtime does not have. */
export type ServiceConnections = {
  readonly ports: readonly number[]
  /** From one IPv4 address, or one IPv6 network of 64 bits. */
  readonly perAddressMax: number
  /** From one IPv4 /24 or one IPv6 /48, which a single client may own. Instances, which share a network, are exempt. */
  readonly perNetworkMax: number
  readonly allMax: number
}

const reset = 'counter reject with tcp reset'
const network4 = 'ip saddr and 255.255.255.0'
const network6 = 'ip6 saddr and ffff:ffff:ffff::'

/** Bounds on connections that are passed on to a VM. An address has one share of all services together. */
export function clientRules(
  { perAddressMax, perNetworkMax, allMax }: ServiceConnections,
  port: number,
): ['gateway_clients', string][] {
  const fresh = `oifname @gateways tcp dport ${port} ct state new`
  return [
    ['gateway_clients', `${fresh} add @connections_v4 { ip saddr ct count over ${perAddressMax} } ${reset}`],
    [
      'gateway_clients',
      `iifname != @taps ${fresh} add @connections_n4 { ${network4} ct count over ${perNetworkMax} } ${reset}`,
    ],
    ['gateway_clients', `${fresh} add @connections_gateway { tcp dport ct count over ${allMax} } ${reset}`],
  ]
}

export function serviceRules(
  { ports, perAddressMax, perNetworkMax, allMax }: ServiceConnections,
  hasV6: boolean,
): ['services', string][] {
  if (ports.length === 0) return []
  // A proxy on this host speaks for many clients.
  const fresh = `iifname != "lo" tcp dport { ${ports.join(', ')} } ct state new`
  const prefix = 'ip6 saddr and ffff:ffff:ffff:ffff::'
  const over = `ct count over ${perAddressMax} } ${reset}`
  const overNetwork = `ct count over ${perNetworkMax} } ${reset}`
  return [
    ['services', `${fresh} add @connections_v4 { ip saddr ${over}`],
    // Instances share one network; each is limited by its address.
    ...(hasV6
      ? ([
          ['services', `iifname @taps ${fresh} add @connections_v6 { ip6 saddr ${over}`],
          ['services', `iifname != @taps ${fresh} add @connections_v6 { ${prefix} ${over}`],
        ] satisfies ['services', string][])
      : [['services', `${fresh} add @connections_v6 { ${prefix} ${over}`] satisfies ['services', string]]),
    ['services', `iifname != @taps ${fresh} add @connections_n4 { ${network4} ${overNetwork}`],
    ['services', `iifname != @taps ${fresh} add @connections_n6 { ${network6} ${overNetwork}`],
    ['services', `${fresh} ct count over ${allMax} ${reset}`],
  ]
}
