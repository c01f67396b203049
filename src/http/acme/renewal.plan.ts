// When a certificate is ordered again: when its server suggests, otherwise before a third of its time is left; after
// failures with growing pauses. Pure.

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

/** When a server suggests to renew (RFC 9773 4.2). */
export type Window = { readonly startMs: number; readonly endMs: number }

/** A suggestion is followed only until so little of the life is left. */
const leftMin = 1 / 6

/** Returns a time in the window; keeps `renewAtMs` if it is in there. A past one is due now, as after a revocation. */
export function renewWithinMs(
  { startMs, endMs }: Window,
  { notBeforeMs, notAfterMs, renewAtMs }: Dates & { readonly renewAtMs: number },
  draw: number,
): number {
  const isWithin = startMs <= renewAtMs && renewAtMs <= endMs
  const atMs = isWithin ? renewAtMs : startMs + draw * (endMs - startMs)
  return Math.min(atMs, notAfterMs - leftMin * (notAfterMs - notBeforeMs))
}

const askRange = { minMs: 60_000, usualMs: 6 * 3_600_000, maxMs: 86_400_000 } as const

/** Returns the time of the next poll. `retryAfterMs`: of the server's `Retry-After`, null if none (RFC 9773 4.3). */
export function askAgainMs(retryAfterMs: number | null, nowMs: number): number {
  return nowMs + Math.min(Math.max(retryAfterMs ?? askRange.usualMs, askRange.minMs), askRange.maxMs)
}

/** Returns the time of the first poll for a new certificate. It limits renewals by suggestion to one an hour. */
export function firstAskMs(nowMs: number): number {
  return nowMs + renewMsMin
}

/** After so many failures in a row. `retryAfterMs`: the server's wish, null without one. */
export function retryAtMs(
  { failures, retryAfterMs }: { readonly failures: number; readonly retryAfterMs: number | null },
  { nowMs, draw }: { readonly nowMs: number; readonly draw: number },
): number {
  const ownMs = backOffMs(retryRange, failures) * (0.8 + 0.4 * draw)
  return nowMs + Math.max(ownMs, Math.min(retryAfterMs ?? 0, retryAfterMsMax))
}
