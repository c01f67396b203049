// Goal: where hosts of a fleet share a key's limits, each request is admitted by the key's share and by its own limits,
// the share learns of each outcome, and the waits and headers are those of whichever is stricter. The shares are
// scripted: what they answer is the test's choice.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createLimiter } from '../../../src/inference/limits/limiter.ts'
import type { Caller } from '../../../src/inference/types.ts'
import { callerOf } from '../../rigs/gateway/keys.ts'

const caller = callerOf({ requestsPerMinute: 10, tokensPerMinute: 1_000, concurrencyMax: 3 })
const none = { prompt: 0, completion: 0 }

function bench() {
  const clock = createManualClock()
  const noted: unknown[] = []
  const share = {
    isDropped: false,
    noteAdmitted: ({ tokens }: { tokens: number }) => void noted.push(['admitted', tokens]),
    noteRefused: ({ tokens }: { tokens: number }, retryMs: number) => void noted.push(['refused', tokens, retryMs]),
    noteNeed: ({ tokens }: { tokens: number }, retryMs: number) => void noted.push(['needs', tokens, retryMs]),
  }
  const script = { isShared: true, hasRoom: true, fits: true, waitMs: 0, tokensWaitMs: 0, requests: 100, tokens: 5_000 }
  const followed: string[] = []
  const prepared: number[] = []
  const waiting = Promise.resolve()
  const shares = {
    get isShared() {
      return script.isShared
    },
    follow: (by: Caller) => {
      followed.push(by.keyPrefix)
      share.isDropped = false
      return script.hasRoom ? share : null
    },
    fits: () => script.fits,
    waitMs: () => script.waitMs,
    tokensWaitMs: () => script.tokensWaitMs,
    left: () => ({ requests: script.requests, tokens: script.tokens }),
    prepare: (_share: unknown, { tokens }: { tokens: number }) => {
      prepared.push(tokens)
      return waiting
    },
    note: (outcome: string) => void noted.push(outcome),
  }
  const limiter = createLimiter(clock, shares as never)
  return {
    ...{ clock, limiter, share, script, followed, prepared, waiting, noted },
    admit: (tokens = 0, by = caller) => {
      const outcome = limiter.admit(by, tokens)
      if (!outcome.ok) throw new Error(outcome.refusal.message)
      return outcome.ticket
    },
    refuse: (tokens = 0, by = caller) => {
      const outcome = limiter.admit(by, tokens)
      if (outcome.ok) throw new Error('admitted')
      const { retryAfterSeconds, message, headers } = outcome.refusal
      const left = [headers['x-ratelimit-remaining-requests'], headers['x-ratelimit-remaining-tokens']]
      return [retryAfterSeconds, message, ...left]
    },
  }
}

const shared =
  'Limit of this key reached: the hosts of this fleet share it, and this host has no more of it at present.'

test('goal: an admitted request is told to the share and counted, once', () => {
  const { admit, noted, followed } = bench()
  admit(300)
  admit(5_000_000, callerOf({ ...caller, keyPrefix: 'bbbbbbbb' }))
  expect(noted).toEqual([['admitted', 300], 'admitted', ['admitted', 1_000], 'admitted'])
  expect(followed).toEqual(['aaaaaaaa', 'bbbbbbbb'])
})

test('goal: a request that the share has no room for is refused in whole seconds, told to the share, and counted', () => {
  const { refuse, script, noted, limiter } = bench()
  Object.assign(script, { waitMs: 1, requests: 0, tokens: 40 })
  expect(refuse(70)).toEqual([1, shared, '0', '40'])
  script.waitMs = 2_001
  expect(refuse(70)).toEqual([3, shared, '0', '40'])
  expect(noted).toEqual([['refused', 70, 1_000], 'refused', ['refused', 70, 3_000], 'refused'])
  expect(limiter.running()).toBe(0)
})

test('goal: the key’s own limit names itself; the wait is the longer one, and the share counts no refusal of its own', () => {
  const { admit, refuse, script, noted } = bench()
  admit(600)
  noted.length = 0
  expect(refuse(401)).toEqual([61, 'Limit of 1000 tokens per minute reached.', '9', '400'])
  expect(noted).toEqual([])
  script.waitMs = 70_000
  expect(refuse(401)).toEqual([70, 'Limit of 1000 tokens per minute reached.', '9', '400'])
  script.waitMs = 5_000
  expect(refuse(401)).toEqual([61, 'Limit of 1000 tokens per minute reached.', '9', '400'])
  expect(noted).toEqual([
    ['refused', 401, 70_000],
    ['refused', 401, 61_000],
  ])
})

test('goal: a key for which there is no room among shares waits ten seconds, and has nothing left', () => {
  const { refuse, script, noted, limiter, followed } = bench()
  script.hasRoom = false
  expect(refuse()).toEqual([10, shared, '0', '0'])
  expect(noted).toEqual(['refused'])
  expect(limiter.prepare(caller, 0)).toBeNull()
  // Each request looks for room again.
  script.hasRoom = true
  expect(limiter.admit(caller, 0).ok).toBe(true)
  expect(followed).toHaveLength(3)
})

test('goal: a share is followed once, and anew after it was dropped or while the limits were not shared', () => {
  const { admit, share, script, followed, noted } = bench()
  admit()
  admit().settle(none)
  expect(followed).toHaveLength(1)
  share.isDropped = true
  admit().settle(none)
  expect(followed).toHaveLength(2)
  script.isShared = false
  noted.length = 0
  // Nothing of the share counts now.
  Object.assign(script, { waitMs: 9_000, tokensWaitMs: 9_000, requests: 0, tokens: 0 })
  const ticket = admit()
  expect(ticket.headers).toMatchObject({
    'x-ratelimit-remaining-requests': '6',
    'x-ratelimit-remaining-tokens': '1000',
  })
  expect(ticket.extend(10)).toBeNull()
  expect([followed.length, noted]).toEqual([2, []])
  ticket.settle(none)
  script.isShared = true
  script.waitMs = 0
  admit()
  expect(followed).toHaveLength(3)
})

test('goal: headers have the key’s limits, and what remains of the stricter of both', () => {
  const { admit, script } = bench()
  const left = (requests: number, tokens: number) => {
    Object.assign(script, { requests, tokens })
    const ticket = admit(100)
    ticket.settle(none)
    const { headers } = ticket
    return [
      headers['x-ratelimit-limit-requests'],
      headers['x-ratelimit-remaining-requests'],
      headers['x-ratelimit-limit-tokens'],
      headers['x-ratelimit-remaining-tokens'],
    ]
  }
  expect(left(100, 5_000)).toEqual(['10', '9', '1000', '900'])
  expect(left(4, 5_000)).toEqual(['10', '4', '1000', '900'])
  expect(left(100, 30)).toEqual(['10', '7', '1000', '30'])
  expect(left(-2, -30)).toEqual(['10', '0', '1000', '0'])
})

test('goal: a request that does not fit its share waits for one, unless its own limit refuses it anyway', () => {
  const { limiter, admit, script, prepared, waiting } = bench()
  expect(limiter.prepare(caller, 100)).toBeNull()
  script.fits = false
  expect(limiter.prepare(caller, 100)).toBe(waiting)
  expect(limiter.prepare(caller, 5_000_000)).toBe(waiting)
  expect(prepared).toEqual([100, 1_000])
  const ticket = admit(950)
  expect(limiter.prepare(caller, 100)).toBeNull()
  ticket.settle(none)
  expect(limiter.prepare(caller, 100)).toBe(waiting)
  const running = [admit(), admit(), admit()]
  expect(limiter.prepare(caller, 0)).toBeNull()
  for (const ended of running) ended.settle(none)
  script.isShared = false
  expect(limiter.prepare(caller, 100)).toBeNull()
  expect(prepared).toEqual([100, 1_000, 100])
})

test('goal: a limiter of no fleet never makes a request wait', () => {
  const clock = createManualClock()
  expect(createLimiter(clock).prepare(caller, 5)).toBeNull()
})

test('goal: more tokens come out of the share and the key’s limit, and a share that lacks them learns the need', () => {
  const { admit, script, noted } = bench()
  const ticket = admit(100)
  noted.length = 0
  expect(ticket.extend(200)).toBeNull()
  expect(noted).toEqual([])
  script.tokensWaitMs = 1
  expect(ticket.extend(50)?.retryAfterSeconds).toBe(1)
  script.tokensWaitMs = 2_500
  const refusal = ticket.extend(50)
  expect(refusal?.retryAfterSeconds).toBe(3)
  expect(refusal?.message).toBe(
    'Limit of 1000 tokens per minute reached, including the earlier responses that the request names.',
  )
  expect(noted).toEqual([
    ['needs', 350, 1_000],
    ['needs', 350, 3_000],
  ])
  // The own limit alone: the share has nothing to learn.
  script.tokensWaitMs = 0
  noted.length = 0
  admit(600)
  noted.length = 0
  expect(ticket.extend(200)?.retryAfterSeconds).toBe(61)
  expect(noted).toEqual([])
})

test('goal: a request whose key has no share any more gets no more tokens for ten seconds', () => {
  const { admit, limiter, script, share } = bench()
  const ticket = admit(100)
  share.isDropped = true
  script.hasRoom = false
  expect(limiter.admit(caller, 0).ok).toBe(false)
  expect(ticket.extend(1)?.retryAfterSeconds).toBe(10)
})

test('goal: a key with a share keeps its state while the share is not dropped, and no longer', () => {
  const { clock, limiter, admit, share } = bench()
  admit().settle(none)
  clock.advance(200_000)
  admit(0, callerOf({ ...caller, keyPrefix: 'bbbbbbbb' })).settle(none)
  expect(limiter.size()).toBe(2)
  share.isDropped = true
  clock.advance(200_000)
  admit(0, callerOf({ ...caller, keyPrefix: 'cccccccc' })).settle(none)
  expect(limiter.size()).toBe(1)
})
