// The public port of VMs that publish ports: who reaches it, and how often, as rules of the appliance's table. Pure.
//
// Shares are per VM and source, so a flood of one VM's port closes no other's. All VMs together use the places of the
// sets and, once those of the rates are full, one bucket for new sources. A wide network has the shares of all its
// networks of 64 bits.

import { reset } from '../nft-services.plan.ts'

/** Connections to the public port of one VM; those beyond are reset. Share: see `publicPerSourceMax`. */
const publicConnectionsMax = 512
/**
 * Connections of one IPv4 address, or one IPv6 network of 64 bits. A connection that the VM has closed counts until the
 * client closes it, or for a minute. No share: limits one source.
 */
const publicPerSourceMax = 32
/** New connections of such a source: each costs the VM a TLS handshake. After a pause it may open its share at once. */
const publicRate = { perSecond: 16, burst: publicPerSourceMax } as const
/** All sources that find the set of rates full have as much as this number of sources. */
const overflowShares = 8

/** The token buckets of sources. A full set evicts none: sources without an entry share one bucket. */
export const PUBLIC_RATED = [
  ['public_rates_v4', 'ifname . ipv4_addr'],
  ['public_rates_v6', 'ifname . ipv6_addr'],
] as const

export function publicRules(port: number, hasV6: boolean): ['forward' | 'gateway_clients', string][] {
  const fresh = `oifname @publishing tcp dport ${port} ct state new`
  const shares = (family: 'v4' | 'v6', source: string) => [
    `${fresh} update @public_rates_${family} { ${source} limit ${limitWords(1)} } ${reset}`,
    `${fresh} ${source} != @public_rates_${family} limit ${limitWords(overflowShares)} ${reset}`,
    `${fresh} add @public_${family} { ${source} ct count over ${publicPerSourceMax} } ${reset}`,
  ]
  const rules = [
    // First, so that forged sources beyond it add no entries.
    `${fresh} add @public_counts { oifname ct count over ${publicConnectionsMax} } ${reset}`,
    ...shares('v4', 'oifname . ip saddr'),
    ...(hasV6 ? shares('v6', 'oifname . ip6 saddr and ffff:ffff:ffff:ffff::') : []),
  ]
  return [
    ['forward', `oifname @publishing tcp dport ${port} accept`],
    ...rules.map((rule): ['gateway_clients', string] => ['gateway_clients', rule]),
  ]
}

function limitWords(shares: number): string {
  return `rate over ${shares * publicRate.perSecond}/second burst ${shares * publicRate.burst} packets`
}
