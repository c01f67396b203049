// How many of the attestation nonces that are kept one network may take: whoever fills its part keeps nobody else from attestation. State in memory,
// which a restart empties; how many are kept in all is counted on disk.

import type { Clock } from '../../base/clock.ts'
import { type Network, type NetworkWidth, networksOf } from '../../http/client-network.ts'
import { createWindow, type Window, wholeSeconds } from '../../http/window.ts'
import type { NonceQuota } from '../types.ts'

export type NonceQuotaDeps = {
  readonly clock: Pick<Clock, 'nowMs'>
  /** How long a nonce is kept. */
  readonly retentionMs: number
  /** How many are kept. */
  readonly countMax: number
  /** Networks of each width with a count of their own; about 0.7 KB each. */
  readonly networksMax?: number
}

/** A network gets one part of so many of all nonces. */
const PARTS: Readonly<Record<NetworkWidth, number>> = { narrow: 64, middle: 32, wide: 8 }
const networksMaxDefault = 8_192

/** A window lasts for a minute; here that minute is the time for which a nonce is kept. */
const minuteMs = 60_000
const secondMs = 1_000

/**
 * A nonce counts for at least as long as it is kept, and at most a 60th longer. When a width has no room for further networks, these count for
 * the wider ones that they are in; wide ones share one part.
 */
export function createNonceQuota(deps: NonceQuotaDeps): NonceQuota & { readonly size: () => number } {
  const { clock, retentionMs, countMax, networksMax = networksMaxDefault } = deps
  const scale = retentionMs / minuteMs
  const scaledNowMs = () => clock.nowMs() / scale
  const tables: Readonly<Record<NetworkWidth, Map<string, Window>>> = {
    narrow: new Map(),
    middle: new Map(),
    wide: new Map(),
  }
  const shared = createWindow()
  let sweptAtMs = scaledNowMs()

  const sweep = (nowMs: number) => {
    if (nowMs - sweptAtMs < secondMs) return
    sweptAtMs = nowMs
    for (const table of Object.values(tables)) {
      for (const [name, window] of table) if (window.total(nowMs) === 0) table.delete(name)
    }
  }
  const limitOf = (width: NetworkWidth) => Math.max(1, Math.floor(countMax / PARTS[width]))
  /** Null: it has taken nothing yet. */
  const windowOf = ({ name, width }: Network): Window | 'none' | null => {
    const table = tables[width]
    const known = table.get(name)
    if (known !== undefined || table.size < networksMax) return known ?? null
    return width === 'wide' ? shared : 'none'
  }

  return {
    refusal: address => {
      const nowMs = scaledNowMs()
      sweep(nowMs)
      for (const network of networksOf(address)) {
        const window = windowOf(network)
        if (window === null || window === 'none') continue
        const limit = limitOf(network.width)
        const waitMs = window.waitMs(nowMs, 1, limit)
        if (waitMs === 0) continue
        const hours = Math.round(retentionMs / 3_600_000)
        const who = window === shared ? 'all networks that are new' : network.name
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
      for (const network of networksOf(address)) {
        const window = windowOf(network) ?? createWindow()
        if (window === 'none') continue
        if (window !== shared) tables[network.width].set(network.name, window)
        window.take(nowMs, 1)
      }
    },
    size: () => tables.narrow.size + tables.middle.size + tables.wide.size,
  }
}
