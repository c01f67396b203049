// The interface by which this host reaches the world. Effects: reads /proc.

import { readFileSync } from 'node:fs'
import { defaultRouteInterface } from './default-route.ts'

/** Interface of the IPv4 default route; null without one. Never throws. */
export function uplinkInterface(): string | null {
  try {
    return defaultRouteInterface(readFileSync('/proc/net/route', 'utf8'))
  } catch {
    return null
  }
}
