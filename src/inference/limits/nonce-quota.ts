// How many of the attestation nonces that are kept one network may take: whoever fills its part keeps nobody else from attestation. State in memory,
// which a restart empties; how many are kept in all is counted on disk.

import type { Clock } from '../../base/clock.ts'
import type { NonceQuota } from '../types.ts'
import { type Network, networksOf } from './address.ts'
import { wholeSeconds } from './limiter.ts'
import { createWindow, type Window } from './window.ts'

export type NonceQuotaDeps = {
  readonly clock: Pick<Clock, 'nowMs'>
  /** How long a nonce is kept. */
  readonly retentionMs: number
  /** How many are kept. */
  readonly countMax: number
  /** Networks with a count of their own; about 0.7 KB each. */
  readonly networksMax?: number
}

/** Parts of all nonces: a network gets one of so many. The shared part is for what has no place in the table. */
const PARTS = { narrow: 64, middle: 32, wide: 8 } as const
const sharedParts = PARTS.wide
const networksMaxDefault = 16_384

/** A window lasts for a minute; here that minute is the time for which a nonce is kept. */
const minuteMs = 60_000
const secondMs = 1_000

/** A nonce counts for at least as long as it is kept, and at most a 60th longer. */
export function createNonceQuota(deps: NonceQuotaDeps): NonceQuota & { readonly size: () => number } {
  const { clock, retentionMs, countMax, networksMax = networksMaxDefault } = deps
  const scale = retentionMs / minuteMs
  const scaledNowMs = () => clock.nowMs() / scale
  const windows = new Map<string, Window>()
  const shared = createWindow()
  let sweptAtMs = scaledNowMs()

  const sweep = (nowMs: number) => {
    if (nowMs - sweptAtMs < secondMs) return
    sweptAtMs = nowMs
    for (const [name, window] of windows) if (window.total(nowMs) === 0) windows.delete(name)
  }
  const limitOf = (parts: number) => Math.max(1, Math.floor(countMax / parts))
  /** What the address counts against. A network that holds nothing has no window yet. */
  const countsOf = (address: string): { readonly window: Window | null; readonly network: Network | null }[] => {
    const networks = networksOf(address)
    const counts = networks.map(network => ({ window: windows.get(network.name) ?? null, network }))
    const missing = counts.filter(one => one.window === null).length
    if (windows.size + missing <= networksMax) return counts
    return [...counts.filter(one => one.window !== null), { window: shared, network: null }]
  }

  return {
    refusal: address => {
      const nowMs = scaledNowMs()
      sweep(nowMs)
      for (const { window, network } of countsOf(address)) {
        const limit = limitOf(network === null ? sharedParts : PARTS[network.width])
        const waitMs = window?.waitMs(nowMs, 1, limit) ?? 0
        if (waitMs === 0) continue
        const hours = Math.round(retentionMs / 3_600_000)
        const who = network === null ? 'all networks that are new' : network.name
        return {
          retryAfterSeconds: wholeSeconds(waitMs * scale),
          headers: {},
          message: `Limit of ${limit} nonces within ${hours} hours reached for ${who}.`,
        }
      }
      return null
    },
    take: address => {
      const nowMs = scaledNowMs()
      for (const { window, network } of countsOf(address)) {
        const counting = window ?? createWindow()
        if (window === null && network !== null) windows.set(network.name, counting)
        counting.take(nowMs, 1)
      }
    },
    size: () => windows.size,
  }
}
