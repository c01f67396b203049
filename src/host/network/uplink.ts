// The interface by which this host reaches the world. Effects: reads /proc.

import { readFileSync } from 'node:fs'
import { defaultRouteInterface } from './default-route.ts'

/** Of the default route, IPv4; null: there is none. Never throws. */
export function uplinkInterface(): string | null {
  try {
    return defaultRouteInterface(readFileSync('/proc/net/route', 'utf8'))
  } catch {
    return null
  }
}
