// Goal: no prefix, and not all of them together, get more than their rate; time alone gives it back.

import { expect, test } from 'bun:test'
import { prefixOf, RateLimiter, type RateSettings } from '../../../src/instances/dns/rate.plan.ts'

const settings: RateSettings = {
  perSecond: 10,
  burst: 20,
  slip: 4,
  windowMs: 10,
  perWindow: 1_000,
  truncatedPerWindow: 1_000,
  prefixesMax: 1_024,
}

function spend(limiter: RateLimiter, address: string, nowMs: number, count: number): Record<string, number> {
  const seen: Record<string, number> = { answer: 0, truncate: 0, drop: 0 }
  for (let i = 0; i < count; i += 1) {
    const admission = limiter.admit(address, nowMs)
    seen[admission] = (seen[admission] ?? 0) + 1
  }
  return seen
}

test('goal: a prefix gets its burst, then every fourth packet a truncated response, and its rate comes back with time', () => {
  const limiter = new RateLimiter(settings, 1)
  expect(spend(limiter, '192.0.2.1', 1_000, 120)).toEqual({ answer: 20, truncate: 25, drop: 75 })
  expect(spend(limiter, '192.0.2.200', 1_000, 4)).toMatchObject({ answer: 0 })
  expect(spend(limiter, '192.0.2.1', 1_500, 50)).toMatchObject({ answer: 5 })
  expect(spend(limiter, '192.0.2.1', 100_000, 50)).toMatchObject({ answer: 20 })
  // A clock that stands still or goes back gives nothing.
  expect(spend(limiter, '192.0.2.1', 99_000, 50)).toMatchObject({ answer: 0 })
})

test('goal: another prefix is not disturbed', () => {
  const limiter = new RateLimiter(settings, 1)
  spend(limiter, '192.0.2.1', 1_000, 500)
  expect(spend(limiter, '198.51.100.1', 1_000, 20)).toEqual({ answer: 20, truncate: 0, drop: 0 })
})

test('goal: all prefixes together get no more than the window, however many forge theirs', () => {
  const limiter = new RateLimiter({ ...settings, perWindow: 50, truncatedPerWindow: 30 }, 7)
  const seen = { answer: 0, truncate: 0, drop: 0 }
  for (let i = 0; i < 100_000; i += 1) seen[limiter.admit(`${i & 0xff}.${(i >> 8) & 0xff}.${i >> 16}.1`, 1_000)] += 1
  expect(seen).toEqual({ answer: 50, truncate: 30, drop: 99_920 })
  expect(spend(limiter, '192.0.2.1', 1_010, 1)).toMatchObject({ drop: 0 })
})

test('goal: prefixes are /24 and /56', () => {
  const same: [string, string][] = [
    ['192.0.2.1', '192.0.2.255'],
    ['::ffff:192.0.2.1', '192.0.2.9'],
    ['2001:db8:1:2200::1', '2001:db8:1:22ff:1:2:3:4'],
    ['2001:db8::1:2:3:4', '2001:db8:0:0:9:9:9:9'],
    ['2001:db8::1:2:3:4:5', '2001:db8:0:2:9:9:9:9'],
    ['::1', '::ffff'],
    ['fe80::1%eth0', 'fe80::2'],
  ]
  for (const [a, b] of same) expect([a, prefixOf(a)]).toEqual([a, prefixOf(b)])
  const other: [string, string][] = [
    ['192.0.2.1', '192.0.3.1'],
    ['2001:db8:1:2200::1', '2001:db8:1:2300::1'],
    ['1:2::', '1:3::'],
    ['2001:db8::100:2:3:4:5', '2001:db8:0:200:2:3:4:5'],
  ]
  for (const [a, b] of other) expect([a, prefixOf(a)]).not.toEqual([a, prefixOf(b)])
})
