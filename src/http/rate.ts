// Requests per minute of each key, as token buckets. State in memory: a bucket for each key that is not full.

import type { Clock } from '../base/clock.ts'
import { LimitedFault } from './limited.ts'

export type RequestRate = {
  /** Counts a request. Fault rate_limited. */
  readonly take: (keyPrefix: string) => void
  /** Number of buckets. */
  readonly size: () => number
}

type Bucket = { left: number; atMs: number }

const minuteMs = 60_000

/** A burst of a minute's requests is allowed; the bucket refills evenly over a minute. */
export function createRequestRate(deps: {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly requestsPerMinute: number
  /** Plural noun for messages. */
  readonly what?: string
}): RequestRate {
  const { clock, requestsPerMinute: capacity, what = 'requests' } = deps
  const buckets = new Map<string, Bucket>()
  let sweptAtMs = clock.monotonicMs()

  /** Drops buckets that a minute without requests has refilled. */
  const sweep = (nowMs: number) => {
    if (nowMs - sweptAtMs < minuteMs) return
    sweptAtMs = nowMs
    for (const [key, bucket] of buckets) if (nowMs - bucket.atMs >= minuteMs) buckets.delete(key)
  }

  return {
    take: keyPrefix => {
      const nowMs = clock.monotonicMs()
      sweep(nowMs)
      const before = buckets.get(keyPrefix) ?? { left: capacity, atMs: nowMs }
      const left = Math.min(capacity, before.left + ((nowMs - before.atMs) * capacity) / minuteMs)
      if (left < 1) {
        buckets.set(keyPrefix, { left, atMs: nowMs })
        const message = `This key may send ${capacity} ${what} per minute; wait for the time in Retry-After.`
        throw new LimitedFault(message, ((1 - left) * minuteMs) / capacity)
      }
      buckets.set(keyPrefix, { left: left - 1, atMs: nowMs })
    },
    size: () => buckets.size,
  }
}
