// Bounds on connections to the services of this host, as rules of the appliance's table. Pure.

/** Bounds on TCP connections to the appliance's own services, which the runtime has not. */
export type ServiceConnections = {
  readonly ports: readonly number[]
  /** From one IPv4 address, or one IPv6 network of 64 bits. */
  readonly perAddressMax: number
  readonly allMax: number
}

const reset = 'counter reject with tcp reset'

/** The bounds of the other services, where connections pass through to the VM. An address has one share of all services together. */
export function clientRules(
  { perAddressMax, allMax }: ServiceConnections,
  port: number,
): ['gateway_clients', string][] {
  const fresh = `oifname @gateways tcp dport ${port} ct state new`
  return [
    ['gateway_clients', `${fresh} add @connections_v4 { ip saddr ct count over ${perAddressMax} } ${reset}`],
    ['gateway_clients', `${fresh} add @connections_gateway { tcp dport ct count over ${allMax} } ${reset}`],
  ]
}

export function serviceRules(
  { ports, perAddressMax, allMax }: ServiceConnections,
  hasV6: boolean,
): ['services', string][] {
  if (ports.length === 0) return []
  // A proxy on this host speaks for many clients.
  const fresh = `iifname != "lo" tcp dport { ${ports.join(', ')} } ct state new`
  const prefix = 'ip6 saddr and ffff:ffff:ffff:ffff::'
  const over = `ct count over ${perAddressMax} } ${reset}`
  return [
    ['services', `${fresh} add @connections_v4 { ip saddr ${over}`],
    // Instances have one network together, and an address each.
    ...(hasV6
      ? ([
          ['services', `iifname @taps ${fresh} add @connections_v6 { ip6 saddr ${over}`],
          ['services', `iifname != @taps ${fresh} add @connections_v6 { ${prefix} ${over}`],
        ] satisfies ['services', string][])
      : [['services', `${fresh} add @connections_v6 { ${prefix} ${over}`] satisfies ['services', string]]),
    ['services', `${fresh} ct count over ${allMax} ${reset}`],
  ]
}
