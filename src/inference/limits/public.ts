// Limit of the public endpoints, per IPv4 address or IPv6 /64, which is what one household or host is given. State in memory.

import type { Clock } from '../../base/clock.ts'
import type { AdmitPublic } from '../types.ts'
import { limitedPrefix } from './address.ts'
import { wholeSeconds } from './limiter.ts'
import { createWindow, type Window, windowMs } from './window.ts'

export type PublicLimiterDeps = {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly requestsPerMinute: number
  /** Addresses with a window of their own; about 0.7 KB each. */
  readonly addressesMax?: number
}

export type PublicLimiter = {
  readonly admitPublic: AdmitPublic
  readonly size: () => number
}

const addressesMaxDefault = 8_192

/**
 * When the table is full, all further addresses share one window. So a sender with very many addresses can crowd out others for a minute,
 * but can never get more than the table's size times the limit.
 */
export function createPublicLimiter(deps: PublicLimiterDeps): PublicLimiter {
  const { clock, requestsPerMinute, addressesMax = addressesMaxDefault } = deps
  const windows = new Map<string, { readonly window: Window; usedAtMs: number }>()
  const shared = createWindow()
  let sweptAtMs = clock.monotonicMs()

  const sweep = (nowMs: number) => {
    if (nowMs - sweptAtMs < windowMs) return
    sweptAtMs = nowMs
    for (const [prefix, { usedAtMs }] of windows) if (nowMs - usedAtMs >= windowMs) windows.delete(prefix)
  }
  const windowOf = (prefix: string, nowMs: number): Window => {
    const known = windows.get(prefix)
    if (known !== undefined) {
      known.usedAtMs = nowMs
      return known.window
    }
    if (windows.size >= addressesMax) return shared
    const window = createWindow()
    windows.set(prefix, { window, usedAtMs: nowMs })
    return window
  }

  return {
    admitPublic: address => {
      const nowMs = clock.monotonicMs()
      sweep(nowMs)
      const window = windowOf(limitedPrefix(address), nowMs)
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
    size: () => windows.size,
  }
}
