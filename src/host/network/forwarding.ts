// Determines whether this host forwards packets: VMs need forwarding, which is on for all interfaces or none. Effects:
// reads /proc and the interfaces' addresses.

import { existsSync, readFileSync } from 'node:fs'
import { networkInterfaces } from 'node:os'

export type Forwarding = {
  /** Whether the kernel forwards this family (ip_forward, conf/all/forwarding). */
  readonly forwards: boolean
  /**
   * Interfaces between which the host forwards: with a non-link-local address, neither loopback nor the link to VMs.
   */
  readonly interfaces: readonly string[]
}

const FAMILIES = {
  ipv4: { name: 'IPv4', file: '/proc/sys/net/ipv4/ip_forward' },
  ipv6: { name: 'IPv6', file: '/proc/sys/net/ipv6/conf/all/forwarding' },
} as const

/**
 * Reads the forwarding of a family. A host that forwards and has two or more interfaces is a router, unless a firewall
 * drops. `link`: this host's end of the link to VMs.
 */
export function readForwarding(family: keyof typeof FAMILIES, link: string): Forwarding {
  const { name, file } = FAMILIES[family]
  const interfaces = Object.entries(networkInterfaces()).flatMap(([device, addresses = []]) =>
    addresses.some(info => info.family === name && !info.internal && !info.address.startsWith('fe80:')) &&
    device !== link
      ? [device]
      : [],
  )
  // A kernel without IPv6 has no such file.
  const forwards = existsSync(file) && readFileSync(file, 'utf8').trim() === '1'
  return { forwards, interfaces: interfaces.sort() }
}
