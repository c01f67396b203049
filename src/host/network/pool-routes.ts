// IPv4 routes that lead to VMs. Effects: reads /proc/net/route (proc_pid_net(5)), which has the main table of our network namespace.

import { readFileSync } from 'node:fs'
import { covers, rangeOf } from '../../base/ipv4.ts'

export type PoolRoute = {
  /** Dotted. */
  readonly address: string
  readonly prefixLength: number
  /** `*` where the route refuses. */
  readonly device: string
}

/** Routes by interfaces that begin with `tapPrefix`, and routes to single addresses of the pool (CIDR) by whichever. Throws where /proc cannot be read. */
export function poolRoutes({ pool, tapPrefix }: { readonly pool: string; readonly tapPrefix: string }): PoolRoute[] {
  const range = rangeOf(pool)
  return parseRoutes(readFileSync('/proc/net/route', 'utf8')).filter(
    ({ address, prefixLength, device }) =>
      device.startsWith(tapPrefix) || (prefixLength === 32 && covers(range, rangeOf(address))),
  )
}

/** Text of /proc/net/route. */
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

/** Bytes as they lie in memory, printed as a number of a little-endian machine. */
function dotted(hex: string): string {
  return [6, 4, 2, 0].map(at => Number.parseInt(hex.slice(at, at + 2), 16)).join('.')
}
