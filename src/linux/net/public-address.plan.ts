// Which addresses of a name are public: builds and instances connect to no others. Pure.

import { BlockList, isIPv4, isIPv6 } from 'node:net'

/**
 * Addresses that are not globally reachable (RFC 6890 and its registry), and those that translate to such addresses.
 */
const NOT_PUBLIC_V4 = [
  ...['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12', '192.0.0.0/24'],
  ...['192.0.2.0/24', '192.88.99.0/24', '192.168.0.0/16', '198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24'],
  ...['224.0.0.0/4', '240.0.0.0/4'],
]
const PUBLIC_V6 = '2000::/3'
const NOT_PUBLIC_V6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20']

const notPublic = listOf([...NOT_PUBLIC_V4, ...NOT_PUBLIC_V6])
const publicV6 = listOf([PUBLIC_V6])

/**
 * Reports whether an address is public. `own`: addresses of this host and networks of its VMs, with or without a prefix
 * length.
 */
export function isPublicAddress(address: string, own: readonly string[]): boolean {
  const family = isIPv4(address) ? 'ipv4' : 'ipv6'
  if (family === 'ipv6' && (!isIPv6(address) || address.includes('%') || !publicV6.check(address, 'ipv6'))) return false
  return !notPublic.check(address, family) && !listOf(own).check(address, family)
}

function listOf(networks: readonly string[]): BlockList {
  const list = new BlockList()
  for (const network of networks) {
    const [address = '', length] = network.split('/')
    const family = isIPv4(address) ? 'ipv4' : 'ipv6'
    if (length === undefined) list.addAddress(address, family)
    else list.addSubnet(address, Number(length), family)
  }
  return list
}
