// Limits: never more than allowed in any minute, waits exact to the second, slots that always come back. A manual
// clock.

import { describe, expect, test } from 'bun:test'
import { casesOf } from '../../../scripts/rigs/all.ts'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { limitedPrefix } from '../../../src/http/client-network.ts'
import { createPublicLimiter } from '../../../src/http/public-rate.ts'
import { createLimiter, resetText } from '../../../src/inference/limits/limiter.ts'
import type { Caller, Refusal, Ticket } from '../../../src/inference/types.ts'
import { callerOf } from '../../rigs/gateway/keys.ts'

/** A fixed sequence of numbers in [0, 1): mulberry32. */
function sequence(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

const none = { prompt: 0, completion: 0 }

function bench() {
  const clock = createManualClock()
  const limiter = createLimiter(clock)
  return {
    clock,
    limiter,
    admit: (caller: Caller, tokens = 0): Ticket => {
      const outcome = limiter.admit(caller, tokens)
      if (!outcome.ok) throw new Error(`refused: ${outcome.refusal.message}`)
      return outcome.ticket
    },
    refuse: (caller: Caller, tokens = 0): Refusal => {
      const outcome = limiter.admit(caller, tokens)
      if (outcome.ok) throw new Error('admitted')
      return outcome.refusal
    },
  }
}

/** The most that any window of 60 seconds holds. */
function mostInAnyMinute(taken: readonly { atMs: number; amount: number }[]): number {
  let [most, sum, from] = [0, 0, 0]
  for (const { atMs, amount } of taken) {
    sum += amount
    for (; (taken[from]?.atMs ?? atMs) <= atMs - 60_000; from += 1) sum -= taken[from]?.amount ?? 0
    most = Math.max(most, sum)
  }
  return most
}

describe('a request that needs more tokens than it was admitted with', () => {
  const caller = callerOf({ tokensPerMinute: 1_000 })
  const left = (limiter: ReturnType<typeof bench>['limiter']) => {
    const outcome = limiter.admit(caller, 0)
    return outcome.ok ? Number(outcome.ticket.headers['x-ratelimit-remaining-tokens']) : 0
  }

  test('goal: they are reserved at once, and those that were not used come back', () => {
    const { admit, limiter } = bench()
    const ticket = admit(caller, 100)
    expect([ticket.extend(600), left(limiter)]).toEqual([null, 300])
    expect([ticket.extend(100), left(limiter)]).toEqual([null, 200])
    ticket.settle({ prompt: 40, completion: 10 })
    expect(left(limiter)).toBe(950)
    // It has ended.
    expect([ticket.extend(500), left(limiter)]).toEqual([null, 950])
  })

  test('goal: beyond the limit it is refused for exactly as long as the others hold it, and keeps what it had', () => {
    const { admit, limiter, clock } = bench()
    const other = admit(caller, 500)
    clock.advance(10_000)
    const ticket = admit(caller, 100)
    const refusal = ticket.extend(401)
    expect(refusal?.message).toBe(
      'Limit of 1000 tokens per minute reached, including the earlier responses that the request names.',
    )
    expect([refusal?.retryAfterSeconds, left(limiter)]).toEqual([51, 400])
    clock.advance(51_000 - 1_000)
    expect(ticket.extend(401)).not.toBeNull()
    clock.advance(1_000)
    expect(ticket.extend(401)).toBeNull()
    other.settle(none)
    ticket.settle(none)
    expect(left(limiter)).toBe(1_000)
  })

  test('goal: more than the whole limit takes all of it, once nobody else has any', () => {
    const { admit, limiter, refuse } = bench()
    const ticket = admit(caller, 100)
    expect([ticket.extend(1_000_000), left(limiter)]).toEqual([null, 0])
    expect(refuse(caller, 1).message).toBe('Limit of 1000 tokens per minute reached.')
    ticket.settle(none)
    const small = admit(caller, 1)
    expect(admit(caller, 1).extend(1_000_000)).not.toBeNull()
    small.settle(none)
  })
})

describe('requests and tokens per minute', () => {
  for (let seed = 1; seed <= casesOf(20); seed += 1) {
    // Goal: over random traffic no minute holds more than the limits, and the limits are nearly reached, so nothing is
    // withheld.
    test(`never more than the limit in any minute, seed ${seed}`, () => {
      const random = sequence(seed)
      const { clock, limiter } = bench()
      const caller = callerOf({
        requestsPerMinute: 1 + Math.floor(random() * 50),
        tokensPerMinute: 100 + Math.floor(random() * 5_000),
      })
      const taken: { atMs: number; tokens: number }[] = []
      for (let step = 0; step < 3_000; step += 1) {
        clock.advance(random() < 0.02 ? random() * 90_000 : random() * 1_500)
        const tokens = Math.floor(random() * 300)
        const outcome = limiter.admit(caller, tokens)
        if (!outcome.ok) continue
        taken.push({ atMs: clock.monotonicMs(), tokens: Math.min(tokens, caller.tokensPerMinute) })
        outcome.ticket.settle({ prompt: Math.min(tokens, caller.tokensPerMinute), completion: 0 })
      }
      const requests = mostInAnyMinute(taken.map(({ atMs }) => ({ atMs, amount: 1 })))
      const tokens = mostInAnyMinute(taken.map(({ atMs, tokens }) => ({ atMs, amount: tokens })))
      expect(requests).toBeLessThanOrEqual(caller.requestsPerMinute)
      expect(tokens).toBeLessThanOrEqual(caller.tokensPerMinute)
      expect(Math.max(requests / caller.requestsPerMinute, tokens / caller.tokensPerMinute)).toBeGreaterThan(0.85)
    })

    // Goal: Retry-After is honest: then it is admitted, and a second earlier it is still refused.
    test(`Retry-After is true to the second, seed ${seed}`, () => {
      const random = sequence(seed + 1_000)
      let refusals = 0
      for (let round = 0; round < 40; round += 1) {
        const caller = callerOf({
          requestsPerMinute: 1 + Math.floor(random() * 8),
          tokensPerMinute: 100 + Math.floor(random() * 900),
        })
        const { clock, limiter } = bench()
        clock.advance(random() * 100_000)
        for (let step = 0; step < 60; step += 1) {
          clock.advance(random() * 4_000)
          const tokens = Math.floor(random() * 400)
          const outcome = limiter.admit(caller, tokens)
          if (outcome.ok) {
            outcome.ticket.settle({ prompt: Math.floor(tokens * random() * 1.5), completion: 0 })
            continue
          }
          refusals += 1
          const { retryAfterSeconds } = outcome.refusal
          expect(retryAfterSeconds).toBeWithin(1, 62)
          clock.advance((retryAfterSeconds - 1) * 1_000 - 1)
          if (retryAfterSeconds > 1) expect(limiter.admit(caller, tokens).ok).toBe(false)
          clock.advance(retryAfterSeconds > 1 ? 1_001 : 1_000 + 1)
          const again = limiter.admit(caller, tokens)
          expect(again.ok).toBe(true)
          if (again.ok) again.ticket.settle({ prompt: tokens, completion: 0 })
        }
      }
      expect(refusals).toBeGreaterThan(100)
    })
  }

  test('a refusal takes nothing', () => {
    // Goal: a client that keeps trying does not push its own admission away.
    const { clock, admit, refuse } = bench()
    const caller = callerOf({ requestsPerMinute: 1 })
    admit(caller)
    for (let i = 0; i < 60; i += 1) {
      refuse(caller)
      clock.advance(1_000)
    }
    clock.advance(1_000)
    admit(caller)
  })

  test('keys do not share', () => {
    // Goal: one key at its limit holds back no other.
    const { admit, refuse } = bench()
    const caller = callerOf({ requestsPerMinute: 1 })
    admit(caller)
    refuse(caller)
    admit({ ...caller, keyPrefix: 'bbbbbbbb' })
  })
})

describe('tokens', () => {
  const caller = callerOf({ tokensPerMinute: 1_000 })
  const remaining = (ticket: Ticket) => ticket.headers['x-ratelimit-remaining-tokens']

  test('unused ones are given back, those used beyond the estimate are taken', () => {
    // Goal: after the end the minute holds what was really used.
    const { admit } = bench()
    const first = admit(caller, 800)
    expect(remaining(first)).toBe('200')
    first.settle({ prompt: 100, completion: 50 })
    const second = admit(caller, 0)
    expect(remaining(second)).toBe('850')
    second.settle({ prompt: 300, completion: 50 })
    expect(remaining(admit(caller, 0))).toBe('500')
  })

  test('use beyond the whole limit holds later requests back until it is a minute old', () => {
    // Goal: an estimate that was far too low is paid for afterwards, within a named time.
    const { clock, admit, refuse } = bench()
    admit(caller, 1).settle({ prompt: 1, completion: 5_000 })
    const { retryAfterSeconds, headers } = refuse(caller, 1)
    expect(headers['x-ratelimit-remaining-tokens']).toBe('0')
    clock.advance((retryAfterSeconds - 1) * 1_000 - 1)
    refuse(caller, 1)
    clock.advance(1_001)
    admit(caller, 1)
  })

  test('a request that lasted longer than a minute', () => {
    // Goal: tokens returned after the window make no room; tokens beyond the estimate count from the end.
    const { clock, admit } = bench()
    const long = admit(caller, 900)
    // Twice 61 seconds: state that is kept by the second would be met again.
    clock.advance(122_000)
    admit(caller, 600)
    long.settle(none)
    expect(remaining(admit(caller, 0))).toBe('400')
    const longer = admit(caller, 0)
    clock.advance(120_000)
    longer.settle({ prompt: 0, completion: 700 })
    expect(remaining(admit(caller, 0))).toBe('300')
  })

  test('an estimate above the limit waits for an empty minute', () => {
    // Goal: such a request is admitted in an empty window, and its Retry-After says when that is.
    const { clock, admit, refuse } = bench()
    admit(caller, 1).settle({ prompt: 1, completion: 0 })
    const { retryAfterSeconds } = refuse(caller, 5_000_000)
    clock.advance(retryAfterSeconds * 1_000)
    expect(remaining(admit(caller, 5_000_000))).toBe('0')
    refuse(caller, 1)
  })

  test('counts that make no sense', () => {
    // Goal: no number from outside can corrupt the sums.
    const { admit } = bench()
    for (const odd of [Number.NaN, -5, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]) {
      admit(caller, odd).settle({ prompt: odd, completion: odd })
    }
    expect(remaining(admit(caller, 0))).toBe('1000')
  })
})

describe('concurrency', () => {
  test('exactly N, and slots come back once', () => {
    // Goal: request N+1 is refused; a slot is free after settle, and settling again frees no second one.
    const { limiter, admit, refuse } = bench()
    const caller = callerOf({ concurrencyMax: 3 })
    const tickets = [admit(caller), admit(caller), admit(caller)]
    expect(refuse(caller).message).toBe('Limit of 3 concurrent requests reached.')
    expect(limiter.running()).toBe(3)
    for (let i = 0; i < 5; i += 1) tickets[0]?.settle(none)
    admit(caller)
    refuse(caller)
    expect(limiter.running()).toBe(3)
  })

  test('a thousand ends in any order leave nothing taken', () => {
    // Goal: slots and reserved tokens are back after 1,000 requests, doubly settled ones among them.
    const random = sequence(7)
    const { limiter, admit, clock } = bench()
    const caller = callerOf({ concurrencyMax: 10, tokensPerMinute: 1_000_000 })
    const running: Ticket[] = []
    for (let i = 0; i < 1_000; i += 1) {
      running.push(admit(caller, Math.floor(random() * 100)))
      if (running.length < 10 && random() < 0.5) continue
      const [ended] = running.splice(Math.floor(random() * running.length), 1)
      ended?.settle(none)
      if (random() < 0.3) ended?.settle({ prompt: 1_000, completion: 1_000 })
      clock.advance(random() * 100)
    }
    for (const ticket of running) ticket.settle(none)
    expect(limiter.running()).toBe(0)
    expect(admit(caller, 0).headers['x-ratelimit-remaining-tokens']).toBe('1000000')
  })

  test('the estimated wait is bounded and follows how long requests take', () => {
    // Goal: at least a second, at most a minute, shorter with more slots; one long request counts as a fifth.
    const waitAfter = (durationMs: number, concurrencyMax: number, requests = 40) => {
      const { clock, admit, refuse } = bench()
      const caller = callerOf({ concurrencyMax })
      for (let i = 0; i < requests; i += 1) {
        const ticket = admit(caller)
        clock.advance(durationMs)
        ticket.settle(none)
      }
      for (let i = 0; i < concurrencyMax; i += 1) admit(caller)
      return refuse(caller).retryAfterSeconds
    }
    expect(waitAfter(1, 1)).toBe(1)
    expect(waitAfter(20_000, 1)).toBe(20)
    expect(waitAfter(20_000, 4)).toBe(5)
    expect(waitAfter(3_600_000, 1)).toBe(60)
    expect(waitAfter(20_000, 1, 1)).toBe(5)
  })
})

test('headers are spelled as OpenAI spells them', () => {
  // Goal: limit, remaining and reset of requests and tokens, on admissions and refusals alike.
  const { clock, admit, refuse } = bench()
  const caller = callerOf({ requestsPerMinute: 2, tokensPerMinute: 100 })
  clock.advance(500)
  expect(admit(caller, 30).headers).toEqual({
    'x-ratelimit-limit-requests': '2',
    'x-ratelimit-remaining-requests': '1',
    'x-ratelimit-reset-requests': '1m1s',
    'x-ratelimit-limit-tokens': '100',
    'x-ratelimit-remaining-tokens': '70',
    'x-ratelimit-reset-tokens': '1m1s',
  })
  clock.advance(20_000)
  admit(caller, 0)
  expect(refuse(caller, 1)).toEqual({
    retryAfterSeconds: 41,
    headers: {
      'x-ratelimit-limit-requests': '2',
      'x-ratelimit-remaining-requests': '0',
      'x-ratelimit-reset-requests': '1m1s',
      'x-ratelimit-limit-tokens': '100',
      'x-ratelimit-remaining-tokens': '70',
      'x-ratelimit-reset-tokens': '41s',
    },
    message: 'Limit of 2 requests per minute reached.',
  })
  expect([0, 0.5, 999, 1_000, 59_000, 60_000, 61_000].map(resetText)).toEqual([
    ...['0ms', '1ms', '999ms', '1s', '59s', '1m0s', '1m1s'],
  ])
})

test('state goes with its use', () => {
  // Goal: memory is bounded by keys in use: idle ones are forgotten, a key with a request under way never is.
  const { clock, limiter, admit } = bench()
  const busy = admit(callerOf({ keyPrefix: 'busy', concurrencyMax: 1 }))
  for (let i = 0; i < 500; i += 1) admit(callerOf({ keyPrefix: `k${i}` })).settle(none)
  expect(limiter.size()).toBe(501)
  clock.advance(200_000)
  admit(callerOf({ keyPrefix: 'new' })).settle(none)
  expect(limiter.size()).toBe(2)
  expect(limiter.admit(callerOf({ keyPrefix: 'busy', concurrencyMax: 1 }), 0).ok).toBe(false)
  busy.settle(none)
  expect(limiter.admit(callerOf({ keyPrefix: 'busy', concurrencyMax: 1 }), 0).ok).toBe(true)
})

describe('public endpoints', () => {
  test('each address has its own minute, and an honest wait', () => {
    // Goal: N per address and minute; Retry-After to the second; other addresses unaffected.
    const clock = createManualClock()
    const { admitPublic } = createPublicLimiter({ clock, requestsPerMinute: 3 })
    clock.advance(700)
    for (let i = 0; i < 3; i += 1) expect(admitPublic('192.0.2.1')).toBe(null)
    const refusal = admitPublic('192.0.2.1')
    expect(refusal?.retryAfterSeconds).toBe(61)
    expect(admitPublic('192.0.2.2')).toBe(null)
    clock.advance(59_999)
    expect(admitPublic('192.0.2.1')).not.toBe(null)
    clock.advance(1_001)
    expect(admitPublic('192.0.2.1')).toBe(null)
  })

  test('the table is bounded', () => {
    // Goal: a flood of addresses fills no memory and shares one minute beyond the table; known addresses go on, idle
    // ones make room.
    const clock = createManualClock()
    const { admitPublic, size } = createPublicLimiter({ clock, requestsPerMinute: 2, addressesMax: 100 })
    const address = (i: number) => `10.0.${i >> 8}.${i & 255}`
    let admitted = 0
    for (let i = 0; i < 5_000; i += 1) if (admitPublic(address(i)) === null) admitted += 1
    // A hundred of their own, and two of their /16.
    expect([size(), admitted]).toEqual([101, 102])
    // Others do not come second to them.
    for (const other of ['192.0.2.1', '2001:db8::1', '10.1.0.1'])
      expect([other, admitPublic(other)]).toEqual([other, null])
    expect(admitPublic(address(5))).toBe(null)
    clock.advance(62_000)
    expect(admitPublic(address(4_000))).toBe(null)
    expect(size()).toBe(1)
  })

  // Goal: what one party is given by its provider is one party, however it is written; no spelling of it escapes.
  test.each([
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::ffff:c000:201', '192.0.2.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:db8:1:2::9', '2001:db8:1:2::/64'],
    ['2001:DB8:1:2:ffff::', '2001:db8:1:2::/64'],
    ['2001:0db8:0001:0003::1', '2001:db8:1:3::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['64:ff9b::192.0.2.33', '64:ff9b:0:0::/64'],
    ['1:2:3:4:5:6:7::', '1:2:3:4::/64'],
    ['', 'unknown'],
    ['/run/x.sock', 'unknown'],
    ['999.1.1.1', 'unknown'],
  ])('%s counts as %s', (address, prefix) => {
    expect(limitedPrefix(address)).toBe(prefix)
  })
})
