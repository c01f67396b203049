// Shares of keys' limits: what is admitted, what is waited for, what is refused with which Retry-After.

import { describe, expect, test } from 'bun:test'
import type { ShareAsk } from '../../../src/contract/vm/shares.ts'
import { shareWaitMs } from '../../../src/inference/limits/key-shares.ts'
import { callerOf } from '../../rigs/gateway/keys.ts'
import { type Fleet, goodMs, granting, none, shareBench } from '../../rigs/limits/key-shares.ts'

describe('a share', () => {
  const caller = callerOf({ requestsPerMinute: 100, tokensPerMinute: 1_000, concurrencyMax: 10 })

  // Goal: more tokens for a request that runs come out of the share, and what is refused is asked
  // for at the fleet.
  test('more tokens for a request', async () => {
    const { admit, asked, clock, stop } = shareBench(granting([2, 500, 2]))
    const ticket = await admit(caller, 100)
    expect(ticket.extend(300)).toBeNull()
    const refusal = ticket.extend(200)
    expect(refusal?.message).toContain('including the earlier responses that the request names')
    expect(refusal?.retryAfterSeconds).toBeGreaterThan(0)
    clock.advance(2_000)
    await Bun.sleep(0)
    expect(asked.at(-1)?.[0]?.least[1]).toBeGreaterThanOrEqual(600)
    expect(ticket.extend(100)).toBeNull()
    stop()
  })

  // Goal: the first request of a key waits for the key's share instead of being refused, and the share bounds what
  // follows in each dimension.
  test('bounds requests, tokens and slots', async () => {
    const { admit, refuse, stop } = shareBench(granting([3, 500, 2]))
    const first = await admit(caller, 100)
    expect(first.headers).toMatchObject({
      'x-ratelimit-limit-requests': '100',
      'x-ratelimit-remaining-requests': '2',
      'x-ratelimit-limit-tokens': '1000',
      'x-ratelimit-remaining-tokens': '400',
    })
    const second = await admit(caller, 100)
    expect((await refuse(caller, 0)).message).toContain('hosts of this fleet share it')
    second.settle({ prompt: 100, completion: 0 })
    await refuse(caller, 301)
    const third = await admit(caller, 300)
    third.settle(none)
    // Three requests within the minute.
    const { retryAfterSeconds, headers } = await refuse(caller)
    expect(headers['x-ratelimit-remaining-requests']).toBe('0')
    expect(retryAfterSeconds).toBeWithin(60, 62)
    stop()
  })

  // Goal: metrics tell requests that the key's own limits refuse from those that another host's part keeps out, and how
  // long the parts are good; nothing of it where limits are not shared.
  test('is counted', async () => {
    const { admit, refuse, shares, clock, stop } = shareBench(granting([2, 500, 2]))
    await admit(caller)
    await admit(caller)
    await refuse(caller)
    expect(shares.view()).toEqual({ keys: 1, admitted: 2, refused: 1, goodMs })
    await refuse(callerOf({ requestsPerMinute: 2, tokensPerMinute: 1_000, concurrencyMax: 10 }))
    expect(shares.view()).toMatchObject({ admitted: 2, refused: 1 })
    clock.advance(1_000)
    expect(shares.view()?.goodMs).toBe(goodMs - 1_000)
    clock.advance(goodMs)
    expect(shares.view()?.goodMs).toBe(0)
    stop()
    expect(shareBench(granting([1, 1, 1]), () => false).shares.view()).toBeNull()
  })

  // Goal: the key's own limits hold whatever the host grants, so that it can lower them alone.
  test('never more than the limits of the key', async () => {
    const { admit, refuse, stop } = shareBench(granting([1_000, 100_000, 1_000]))
    const own = callerOf({ requestsPerMinute: 2, tokensPerMinute: 1_000, concurrencyMax: 10 })
    await admit(own)
    await admit(own)
    expect((await refuse(own)).message).toBe('Limit of 2 requests per minute reached.')
    stop()
  })

  // Goal: each limit has its own number: what is granted, what is to be kept of it, and when more may come.
  test('each of the three limits by itself', async () => {
    const more = { keep: [70, 900, 3], moreInMs: [5_000, 6_000, 7_000] } as const
    const { clock, admit, asked, limiter, refuse, stop } = shareBench(granting([80, 800, 4], more as never))
    const held = [await admit(caller, 100), await admit(caller, 100), await admit(caller, 100)]
    await clock.elapse(2_500)
    expect(asked.at(-1)?.[0]?.share).toEqual([70, 800, 3])
    // A fourth at once; then 900 tokens, of which 800 are granted.
    await refuse(caller)
    for (const ticket of held) ticket.settle(none)
    expect(limiter.admit(caller, 801).ok).toBe(false)
    expect(limiter.admit(caller, 500).ok).toBe(true)
    stop()
  })

  // Goal: keys that come into use one after the other are asked for 100 ms after the question before, not sooner.
  test('questions are 100 ms apart', async () => {
    const { clock, admit, enter, asked, stop } = shareBench(granting([100, 1_000, 10]))
    await admit(caller)
    expect(asked).toHaveLength(1)
    void enter(callerOf({ ...caller, keyPrefix: 'bbbbbbbb' }))
    await clock.elapse(99)
    expect(asked).toHaveLength(1)
    await clock.elapse(1)
    expect(asked.at(-1)?.map(({ keyPrefix }) => keyPrefix)).toEqual(['bbbbbbbb'])
    stop()
  })

  // Goal: what another host has a right to is given up at once: nothing more is admitted of it, and the fleet hears of
  // it without waiting for the next round.
  test('what is not to be kept is over at once', async () => {
    const { clock, admit, refuse, asked, scripted, stop } = shareBench(granting([100, 1_000, 10]))
    await admit(caller)
    scripted.fleet = granting([100, 1_000, 10], { keep: [1, 1_000, 10], isWanted: true })
    await clock.elapse(1_950)
    const before = asked.length
    await clock.elapse(50)
    scripted.fleet = granting([1, 1_000, 10])
    await refuse(caller)
    await clock.elapse(200)
    expect(asked.slice(before).map(asks => asks[0]?.share[0])).toEqual([100, 1])
    stop()
  })

  // Goal: an idle key costs nothing: its share is given back a minute after its last use, and nobody is asked any more.
  test('is given back after a minute', async () => {
    const { clock, admit, asked, limiter, shares, stop } = shareBench(granting([100, 1_000, 10]))
    ;(await admit(caller)).settle(none)
    await clock.elapse(59_000)
    expect(shares.size).toBe(1)
    await clock.elapse(6_000)
    expect(asked.at(-1)).toMatchObject([{ share: [0, 0, 0], held: [0, 0, 0], wanted: [0, 0, 0] }])
    expect([shares.size, asked.length]).toEqual([0, asked.length])
    const { length } = asked
    await clock.elapse(600_000)
    expect(asked).toHaveLength(length)
    await admit(callerOf({ keyPrefix: 'bbbbbbbb' }))
    expect(limiter.size()).toBe(1)
    stop()
  })

  // Goal: one question in two seconds for all keys together, however many requests there are.
  test('all keys of a host in one question', async () => {
    const { clock, enter, asked, stop } = shareBench(granting([1_000, 1_000, 1_000]))
    const callers = Array.from({ length: 50 }, (_, at) => callerOf({ ...caller, keyPrefix: `k${at}` }))
    for (const caller of callers) void enter(caller)
    await clock.elapse(1_000)
    const before = asked.length
    for (let at = 0; at < 100; at += 1) {
      for (const caller of callers) void enter(caller)
      await clock.elapse(100)
    }
    expect(asked.length - before).toBe(5)
    expect(asked.at(-1)).toHaveLength(50)
    stop()
  })
})

describe('without an answer', () => {
  const caller = callerOf({ requestsPerMinute: 100, tokensPerMinute: 1_000, concurrencyMax: 10 })
  const away: Fleet = () => Promise.reject(new Error('away'))

  // Goal: the shares that are here go on for their time, counted from before they were asked for, and not longer.
  test('a share goes on for its time', async () => {
    const { clock, admit, refuse, scripted, stop } = shareBench(granting([100, 1_000, 10]))
    ;(await admit(caller)).settle(none)
    await clock.elapse(3_000)
    scripted.fleet = away
    for (let at = 0; at < 4; at += 1) {
      await clock.elapse(60_000)
      ;(await admit(caller)).settle(none)
    }
    // The last answer was to the question at two seconds.
    await clock.elapse(2_000 + goodMs - clock.monotonicMs() - 1)
    ;(await admit(caller)).settle(none)
    await clock.elapse(1)
    const { retryAfterSeconds, headers } = await refuse(caller)
    expect([retryAfterSeconds, headers['x-ratelimit-remaining-requests']]).toEqual([1, '0'])
    // It is void: the fleet hears what the minute holds, and of no share.
    const asks: ShareAsk[] = []
    scripted.fleet = given => {
      asks.push(...given)
      return granting([100, 1_000, 10])(given)
    }
    await clock.elapse(3_000)
    expect(asks[0]).toMatchObject({ share: [0, 0, 0], held: [1, 0, 0] })
    ;(await admit(caller)).settle(none)
    stop()
  })

  // Goal: the time of a share counts from before the question, however late the answer, and ends between two questions
  // as well, as for a process that was stopped.
  test('a late answer makes no share last longer', async () => {
    const { clock, enter, limiter, scripted, stop } = shareBench(granting([100, 1_000, 10]))
    const late = Promise.withResolvers<void>()
    scripted.fleet = async asks => {
      await late.promise
      scripted.fleet = () => new Promise(() => {})
      return granting([100, 1_000, 10])(asks)
    }
    const first = enter(caller)
    await clock.elapse(2_500)
    late.resolve()
    expect((await first).ok).toBe(true)
    await clock.elapse(goodMs - 2_500 - 1)
    expect(limiter.admit(caller, 0).ok).toBe(true)
    await clock.elapse(1)
    expect(limiter.admit(caller, 0).ok).toBe(false)
    stop()
  })

  // Goal: while the fleet does not answer, a request that its share does not fit is refused at once.
  test('nothing is waited for', async () => {
    const { clock, admit, scripted, limiter, stop } = shareBench(granting([1, 1_000, 10], { moreInMs: [0, 0, 0] }))
    ;(await admit(caller)).settle(none)
    expect(limiter.prepare(caller, 0) === null).toBe(false)
    scripted.fleet = away
    await clock.elapse(3_000)
    expect(limiter.prepare(caller, 0)).toBeNull()
    stop()
  })

  // Goal: the first use of a key without an answer is refused with Retry-After, and soon once that is known.
  test('a key that has no share yet is refused', async () => {
    const { clock, enter, refuse, stop } = shareBench(away)
    const first = enter(caller)
    await clock.elapse(0)
    expect(await first).toMatchObject({ ok: false, refusal: { retryAfterSeconds: 2 } })
    expect((await refuse(callerOf({ ...caller, keyPrefix: 'bbbbbbbb' }))).retryAfterSeconds).toBe(2)
    stop()
  })

  // Goal: a fleet that says nothing at all holds no request for longer than the wait, and few of them.
  test('waits have an end and a number', async () => {
    const { clock, enter, stop } = shareBench(() => new Promise(() => {}))
    const refused: number[] = []
    for (let at = 0; at < 300; at += 1) void enter(caller).then(({ ok }) => void (ok || refused.push(at)))
    await clock.elapse(0)
    // Beyond those that wait for this key.
    expect(refused).toHaveLength(300 - 256)
    await clock.elapse(shareWaitMs - 1)
    expect(refused).toHaveLength(300 - 256)
    await clock.elapse(1)
    expect(refused).toHaveLength(300)
    stop()
  })
})

describe('bounds', () => {
  // Goal: one organization's keys leave room for those of others, and a key without a share is refused.
  test('an organization has a quarter of the keys', async () => {
    const { clock, enter, shares, refuse, admit, stop } = shareBench(granting([1_000, 1_000, 1_000]))
    for (let at = 0; at < 1_100; at += 1) void enter(callerOf({ keyPrefix: `k${at}` }))
    await clock.elapse(5_000)
    expect(shares.size).toBe(1_024)
    expect((await refuse(callerOf({ keyPrefix: 'k1099' }))).retryAfterSeconds).toBe(10)
    await admit(callerOf({ keyPrefix: 'k0' }))
    const other = admit(callerOf({ keyPrefix: 'other', organizationId: 'o2' }))
    await clock.elapse(100)
    await other
    stop()
  })

  // Goal: a gateway in no fleet, or before it knows of one, has all of each key's limits and asks nobody.
  test('nobody is asked where nothing is shared', async () => {
    let isShared = false
    const { admit, limiter, refuse, asked, stop } = shareBench(granting([1, 1_000, 10]), () => isShared)
    const caller = callerOf({ requestsPerMinute: 3 })
    expect(limiter.prepare(caller, 0)).toBeNull()
    await admit(caller)
    await admit(caller)
    expect(asked).toEqual([])
    isShared = true
    await refuse(caller)
    expect(asked).toHaveLength(1)
    stop()
  })
})
