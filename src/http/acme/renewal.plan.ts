// When a certificate is ordered again: before a third of its time is left; after failures with growing pauses. Pure.

import { backOffMs } from '../../base/work/back-off.ts'

/** At most four attempts in the first hour; common servers allow five failed proofs of one name in an hour. */
const retryRange = { minMs: 5 * 60_000, maxMs: 12 * 3_600_000 } as const
/** Longest accepted `Retry-After`. */
const retryAfterMsMax = 7 * 86_400_000
/** A certificate that ends at once must not make a loop of orders. */
const renewMsMin = 3_600_000
/** Spreads renewals of certificates from one moment, as a share of their life. */
const spread = 1 / 20

export type Dates = { readonly notBeforeMs: number; readonly notAfterMs: number }

/** `draw`: random, from 0 to 1. */
export function renewAtMs({ notBeforeMs, notAfterMs }: Dates, now: { nowMs: number; draw: number }): number {
  const lifeMs = notAfterMs - notBeforeMs
  return Math.max(notAfterMs - lifeMs / 3 - now.draw * spread * lifeMs, now.nowMs + renewMsMin)
}

/** After so many failures in a row. `retryAfterMs`: the server's wish, null without one. */
export function retryAtMs(
  { failures, retryAfterMs }: { readonly failures: number; readonly retryAfterMs: number | null },
  { nowMs, draw }: { readonly nowMs: number; readonly draw: number },
): number {
  const ownMs = backOffMs(retryRange, failures) * (0.8 + 0.4 * draw)
  return nowMs + Math.max(ownMs, Math.min(retryAfterMs ?? 0, retryAfterMsMax))
}
