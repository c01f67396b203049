// Routes that lead to VMs. Effects: reads /proc/thread-self/net (proc_pid_net(5)), which shows the main table of the
// network namespace that the caller is in.

import { readFileSync } from 'node:fs'
import { containsRange, rangeOf } from '../../base/ipv4.ts'
import { coversV6, formatIpv6, rangeOfV6 } from '../../base/ipv6.ts'

export type PoolRoute = {
  /** Dotted, or in the form of `formatIpv6`. */
  readonly address: string
  readonly prefixLength: number
  /** `*` if the route refuses packets. */
  readonly device: string
}

type Pools = { readonly v4: string | null; readonly v6: string | null }

/**
 * Returns routes by interfaces that begin with `tapPrefix`, except the default one, and routes to single addresses of
 * the pools (CIDR) by any interface. IPv6 routes only with an IPv6 pool. Throws if /proc is unreadable.
 */
export function poolRoutes({ pools, tapPrefix }: { readonly pools: Pools; readonly tapPrefix: string }): PoolRoute[] {
  const range = pools.v4 === null ? null : rangeOf(pools.v4)
  const found = parseRoutes(readFileSync('/proc/thread-self/net/route', 'utf8')).filter(
    ({ address, prefixLength, device }) =>
      (device.startsWith(tapPrefix) && prefixLength > 0) ||
      (range !== null && prefixLength === 32 && containsRange(range, rangeOf(address))),
  )
  if (pools.v6 === null) return found
  const rangeV6 = rangeOfV6(pools.v6)
  const foundV6 = parseRoutesV6(readFileSync('/proc/thread-self/net/ipv6_route', 'utf8')).filter(
    ({ address, prefixLength, device }) =>
      (device.startsWith(tapPrefix) && prefixLength > 0) ||
      (prefixLength === 128 && coversV6(rangeV6, rangeOfV6(address))),
  )
  return [...found, ...foundV6]
}

/** Parses the text of /proc/net/route. */
export function parseRoutes(text: string): PoolRoute[] {
  return text
    .split('\n')
    .slice(1)
    .flatMap(line => {
      const [device = '', destination = '', , , , , , mask = ''] = line.trim().split(/\s+/)
      if (!/^[0-9A-F]{8}$/.test(destination) || !/^[0-9A-F]{8}$/.test(mask)) return []
      const prefixLength = [...Number.parseInt(mask, 16).toString(2)].filter(bit => bit === '1').length
      return [{ address: dotted(destination), prefixLength, device }]
    })
}

/** Flags of a route to an address of this host, and to an anycast address (include/uapi/linux/ipv6_route.h). */
export const RTF = { local: 0x8000_0000, anycast: 0x0010_0000 } as const

/**
 * Parses the text of /proc/net/ipv6_route. Omits routes that the kernel makes for every interface: its own addresses,
 * link-local, multicast.
 */
export function parseRoutesV6(text: string): PoolRoute[] {
  return text.split('\n').flatMap(line => {
    const words = line.trim().split(/\s+/)
    const [destination = '', length = '', , , , , , , flags = ''] = words
    if (words.length !== 10 || !/^[0-9a-f]{32}$/.test(destination)) return []
    const isOwn = (Number.parseInt(flags, 16) & (RTF.local | RTF.anycast)) !== 0
    if (isOwn || /^(fe80|ff00)/.test(destination)) return []
    const address = formatIpv6(BigInt(`0x${destination}`))
    return [{ address, prefixLength: Number.parseInt(length, 16), device: words[9] ?? '' }]
  })
}

/** Formats bytes that are printed as a number of a little-endian machine. */
function dotted(hex: string): string {
  return [6, 4, 2, 0].map(at => Number.parseInt(hex.slice(at, at + 2), 16)).join('.')
}
