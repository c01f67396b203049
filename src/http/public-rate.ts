// Requests per minute without a key, for each IPv4 address or IPv6 /64, which is what a household or host gets. State
// in memory, bounded: when the table is full, further addresses share the window of their /16 or /32.

import type { Clock } from '../base/clock.ts'
import { IdleMap } from '../base/work/idle-map.ts'
import { limitedPrefix, networksOf } from './client-network.ts'
import { createWindow, type Window, wholeSeconds, windowMs } from './window.ts'

export type PublicLimiterDeps = {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly requestsPerMinute: number
  /** Addresses with a window, and as many wide networks; about 0.7 KB each. */
  readonly addressesMax?: number
}

export type PublicRefusal = {
  readonly retryAfterSeconds: number
  readonly headers: Readonly<Record<string, string>>
  readonly message: string
}

export type PublicLimiter = {
  /** Null if admitted. */
  readonly admitPublic: (address: string) => PublicRefusal | null
  readonly size: () => number
}

/** Share: when full, newcomers count for their /16 or /32. */
const addressesMaxDefault = 8_192

type Windows = IdleMap<{ readonly window: Window; usedAtMs: number }>

/** Once the table of addresses is full, a /16 or /32 gets a window; once that is full, all others share a window. */
export function createPublicLimiter(deps: PublicLimiterDeps): PublicLimiter {
  const { clock, requestsPerMinute, addressesMax = addressesMaxDefault } = deps
  const ofAddresses: Windows = new IdleMap(windowMs, clock.monotonicMs())
  const ofWideNetworks: Windows = new IdleMap(windowMs, clock.monotonicMs())
  const shared = createWindow()

  /** Null if the table is full. */
  const windowIn = (windows: Windows, name: string, nowMs: number): Window | null => {
    const known = windows.get(name)
    if (known !== undefined) {
      known.usedAtMs = nowMs
      return known.window
    }
    if (windows.size >= addressesMax) return null
    const window = createWindow()
    windows.set(name, { window, usedAtMs: nowMs })
    return window
  }
  const windowOf = (address: string, nowMs: number): Window => {
    const own = windowIn(ofAddresses, limitedPrefix(address), nowMs)
    return own ?? windowIn(ofWideNetworks, networksOf(address).at(-1)?.name ?? '', nowMs) ?? shared
  }

  return {
    admitPublic: address => {
      const nowMs = clock.monotonicMs()
      for (const windows of [ofAddresses, ofWideNetworks]) windows.sweep(nowMs)
      const window = windowOf(address, nowMs)
      const waitMs = window.waitMs(nowMs, 1, requestsPerMinute)
      if (waitMs === 0) {
        window.take(nowMs, 1)
        return null
      }
      return {
        retryAfterSeconds: wholeSeconds(waitMs),
        headers: {},
        message: `Limit of ${requestsPerMinute} requests per minute and address reached.`,
      }
    },
    size: () => ofAddresses.size + ofWideNetworks.size,
  }
}
