// Goal: no prefix, and not all of them together, get more than their rate; time alone gives it back.

import { expect, test } from 'bun:test'
import { prefixOf, RateLimiter, type RateSettings, rateDefaults } from '../../../src/instances/dns/rate.plan.ts'

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

/** Different /24s. */
const prefixes = (count: number) => Array.from({ length: count }, (_, i) => `${i >> 16}.${(i >> 8) & 255}.${i & 255}.1`)
const answered = (limiter: RateLimiter, count: number) =>
  prefixes(count).filter(address => limiter.admit(address, 1_000) === 'answer')

test('goal: the appliance sends 100 responses in 10 ms and 200 truncated ones, 200 a second to one prefix', () => {
  const limiter = new RateLimiter(rateDefaults, 3)
  const flood = { answer: 0, truncate: 0, drop: 0 }
  for (const address of prefixes(1_000)) flood[limiter.admit(address, 1_000)] += 1
  expect(flood).toEqual({ answer: 100, truncate: 200, drop: 700 })
  expect(spend(limiter, '192.0.2.1', 1_009, 1)).toMatchObject({ drop: 1 })
  expect(spend(limiter, '192.0.2.1', 1_010, 1)).toMatchObject({ answer: 1 })
  // Its burst of 400, and its rate in the 200 ms that twenty windows last; every fourth beyond that is truncated.
  const alone = new RateLimiter(rateDefaults, 3)
  const seen = { answer: 0, truncate: 0, drop: 0 }
  for (let window = 0; window < 20; window += 1)
    for (let i = 0; i < 40; i += 1) seen[alone.admit('192.0.2.1', 5_000 + 10 * window)] += 1
  expect(seen).toEqual({ answer: 438, truncate: 90, drop: 272 })
})

test('goal: counters are as many as the settings say, all of them used; 16,384 in the appliance', () => {
  const open = { ...settings, perSecond: 0, burst: 1, perWindow: 1_000_000 }
  for (const prefixesMax of [1, 2, 4, 16])
    expect(answered(new RateLimiter({ ...open, prefixesMax }, 5), 500)).toHaveLength(prefixesMax)
  const { prefixesMax } = rateDefaults
  const used = answered(new RateLimiter({ ...open, prefixesMax }, 5), 150_000).length
  expect(used).toBeWithin(16_200, 16_385)
})

test('goal: the seed decides who shares a counter', () => {
  // Which of these are answered: the first of each counter.
  const first = (seed: number) =>
    answered(new RateLimiter({ ...settings, perSecond: 0, burst: 1, prefixesMax: 16 }, seed), 100).join(' ')
  const patterns = Array.from({ length: 16 }, (_, seed) => first(seed))
  expect(new Set(patterns).size).toBe(16)
})

test('goal: of every `slip` packets beyond the rate one gets a truncated response, while there are any', () => {
  for (const slip of [1, 2, 3, 5]) {
    const limiter = new RateLimiter({ ...settings, slip }, 1)
    expect(spend(limiter, '192.0.2.1', 1_000, 20 + 6 * slip)).toEqual({ answer: 20, truncate: 6, drop: 6 * slip - 6 })
  }
  const none = new RateLimiter({ ...settings, truncatedPerWindow: 0 }, 1)
  expect(spend(none, '192.0.2.1', 1_000, 60)).toEqual({ answer: 20, truncate: 0, drop: 40 })
})

test('goal: what is dropped for the sake of all costs its prefix nothing', () => {
  const limiter = new RateLimiter({ ...settings, perSecond: 0, perWindow: 20, truncatedPerWindow: 0 }, 1)
  expect(spend(limiter, '192.0.2.1', 1_000, 20)).toMatchObject({ answer: 20 })
  expect(spend(limiter, '198.51.100.1', 1_000, 50)).toMatchObject({ drop: 50 })
  expect(spend(limiter, '198.51.100.1', 1_010, 20)).toMatchObject({ answer: 20 })
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
