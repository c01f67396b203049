// The address of this host on the interface of its default route. Effects: reads /proc and the interfaces' addresses.

import { existsSync, readFileSync } from 'node:fs'
import { networkInterfaces } from 'node:os'

/**
 * Returns the single IPv4 address of the default route's interface; null if there is no route, or several addresses.
 * Never throws.
 */
export function defaultRouteAddress(): string | null {
  const file = '/proc/net/route'
  // A kernel without IPv4 has no such file.
  const name = existsSync(file) ? defaultRouteInterface(readFileSync(file, 'utf8')) : null
  if (name === null) return null
  const addresses = (networkInterfaces()[name] ?? []).filter(({ family }) => family === 'IPv4')
  return addresses.length === 1 ? (addresses[0]?.address ?? null) : null
}

const FLAG_UP = 1

/** Parses /proc/net/route (proc_pid_net(5)): destination and mask zero, up, lowest metric. */
export function defaultRouteInterface(text: string): string | null {
  const routes = text
    .split('\n')
    .slice(1)
    .flatMap(line => {
      const [name = '', destination, , flags = '0', , , metric = '0', mask] = line.trim().split(/\s+/)
      const isDefault =
        destination === '00000000' && mask === '00000000' && (Number.parseInt(flags, 16) & FLAG_UP) !== 0
      return isDefault ? [{ name, metric: Number(metric) }] : []
    })
  return routes.sort((a, b) => a.metric - b.metric)[0]?.name ?? null
}
