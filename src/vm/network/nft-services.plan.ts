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

type Bounds = Omit<ServiceConnections, 'ports'>
type ClientRule = ['gateway_clients', string]

/** Bounds on connections of guests that are passed on to a VM. */
export function guestClientRules({ perAddressMax, allMax }: Bounds, port: number): ClientRule[] {
  const fresh = `iifname @taps oifname @gateways tcp dport ${port} ct state new`
  return [
    ['gateway_clients', `${fresh} add @connections_v4 { ip saddr ct count over ${perAddressMax} } ${reset}`],
    ['gateway_clients', `${fresh} add @connections_gateway { tcp dport ct count over ${allMax} } ${reset}`],
  ]
}

/**
 * The same of clients from outside, who come to the VM by `link`. An address has one share of all services together.
 */
export function clientRules({ perAddressMax, perNetworkMax, allMax }: Bounds, to: To): ClientRule[] {
  const fresh = `iifname != "${to.link}" oifname "${to.link}" tcp dport ${to.port} ct state new`
  return [
    ['gateway_clients', `${fresh} add @connections_v4 { ip saddr ct count over ${perAddressMax} } ${reset}`],
    ['gateway_clients', `${fresh} add @connections_n4 { ${network4} ct count over ${perNetworkMax} } ${reset}`],
    ['gateway_clients', `${fresh} add @connections_gateway { tcp dport ct count over ${allMax} } ${reset}`],
  ]
}

type To = { readonly link: string; readonly port: number }

/** `link`: interface that VMs come by. */
export function serviceRules(
  { ports, perAddressMax, perNetworkMax, allMax }: ServiceConnections,
  { link, hasV6 }: { readonly link: string; readonly hasV6: boolean },
): ['services', string][] {
  if (ports.length === 0) return []
  // A proxy on this host speaks for many clients.
  const fresh = `iifname != "lo" tcp dport { ${ports.join(', ')} } ct state new`
  const prefix = 'ip6 saddr and ffff:ffff:ffff:ffff::'
  const over = `ct count over ${perAddressMax} } ${reset}`
  const overNetwork = `ct count over ${perNetworkMax} } ${reset}`
  const [guests, others] = [`iifname "${link}"`, `iifname != "${link}"`]
  return [
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
