// The addresses of this host's interfaces, and the networks to which they belong. Effects: reads them.

import { networkInterfaces } from 'node:os'
import { canonicalNetwork } from '../../base/ipv4.ts'
import { canonicalNetworkV6, formatIpv6, parseIpv6 } from '../../base/ipv6.ts'

type Address = { readonly family: string; readonly cidr: string | null }

type Options = {
  readonly withV6: boolean
  readonly interfaces?: Readonly<Record<string, readonly Address[] | undefined>>
}

/**
 * Returns the networks of the interfaces, sorted, without repeats. Omits single addresses (/32, /128), because the
 * kernel tests its own addresses (nft(8), fib), and IPv6 link-local networks, which every interface has.
 */
export function ownNetworks({ withV6, interfaces = networkInterfaces() }: Options): string[] {
  const networks = Object.values(interfaces).flatMap(addresses =>
    (addresses ?? []).flatMap(({ family, cidr }) => {
      if (cidr === null) return []
      if (family === 'IPv4') return cidr.endsWith('/32') ? [] : [canonicalNetwork(cidr)]
      return !withV6 || cidr.endsWith('/128') || !/^[0-9a-f:]+\/[0-9]+$/.test(cidr) || cidr.startsWith('fe80:')
        ? []
        : [canonicalNetworkV6(cidr)]
    }),
  )
  return [...new Set(networks)].sort()
}

/**
 * Returns the addresses, sorted, without repeats, without loopback and IPv6 link-local ones, which others cannot reach.
 */
export function ownAddresses({ withV6, interfaces = networkInterfaces() }: Options): string[] {
  const addresses = Object.values(interfaces).flatMap(all =>
    (all ?? []).flatMap(({ family, cidr }) => {
      const address = cidr?.split('/')[0] ?? ''
      if (family === 'IPv4') return address === '' || address.startsWith('127.') ? [] : [address]
      return !withV6 || !/^[0-9a-f:]+$/.test(address) || address === '::1' || address.startsWith('fe80:')
        ? []
        : [formatIpv6(parseIpv6(address))]
    }),
  )
  return [...new Set(addresses)].sort()
}
