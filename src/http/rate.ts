// Requests per minute of each key, as token buckets. State in memory: a bucket for each key that is not full.

import type { Clock } from '../base/clock.ts'
import { minuteMs } from '../base/time.ts'
import { IdleMap } from '../base/work/idle-map.ts'
import { LimitedFault } from './limited.ts'

export type RequestRate = {
  /** Counts a request. Fault rate_limited. */
  readonly take: (keyPrefix: string) => void
  /** Number of buckets. */
  readonly size: () => number
}

/** A burst of a minute's requests is allowed; the bucket refills evenly over a minute. */
export function createRequestRate(deps: {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly requestsPerMinute: number
  /** Plural noun for messages. */
  readonly what?: string
}): RequestRate {
  const { clock, requestsPerMinute: capacity, what = 'requests' } = deps
  /** A minute without requests refills a bucket. */
  const buckets = new IdleMap<{ readonly left: number; readonly usedAtMs: number }>(minuteMs, clock.monotonicMs())
  return {
    take: keyPrefix => {
      const nowMs = clock.monotonicMs()
      buckets.sweep(nowMs)
      const before = buckets.get(keyPrefix) ?? { left: capacity, usedAtMs: nowMs }
      const left = Math.min(capacity, before.left + ((nowMs - before.usedAtMs) * capacity) / minuteMs)
      if (left < 1) {
        buckets.set(keyPrefix, { left, usedAtMs: nowMs })
        const message = `This key may send ${capacity} ${what} per minute; wait for the time in Retry-After.`
        throw new LimitedFault(message, ((1 - left) * minuteMs) / capacity)
      }
      buckets.set(keyPrefix, { left: left - 1, usedAtMs: nowMs })
    },
    size: () => buckets.size,
  }
}
