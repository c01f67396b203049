// The IPv4 networks that this host is in, by the addresses of its interfaces. Effects: reads them.

import { networkInterfaces } from 'node:os'
import { canonicalNetwork } from '../../base/ipv4.ts'

type Address = { readonly family: string; readonly cidr: string | null }

/** Networks in order, each once. What is an address alone (/32) is no network: the kernel knows its own addresses (nft(8), fib). */
export function ownNetworks(
  interfaces: Readonly<Record<string, readonly Address[] | undefined>> = networkInterfaces(),
): string[] {
  const networks = Object.values(interfaces).flatMap(addresses =>
    (addresses ?? []).flatMap(({ family, cidr }) =>
      family === 'IPv4' && cidr !== null && !cidr.endsWith('/32') ? [canonicalNetwork(cidr)] : [],
    ),
  )
  return [...new Set(networks)].sort()
}
