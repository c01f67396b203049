// Shares of keys' limits: what fits and for how long the rest waits, requests that wait, and outages of the fleet.

import { describe, expect, test } from 'bun:test'
import type { Amounts, ShareGrant } from '../../../src/contract/vm/shares.ts'
import { createWindow } from '../../../src/http/window.ts'
import type { KeyUse } from '../../../src/inference/limits/key-share.ts'
import { shareWaitMs } from '../../../src/inference/limits/key-shares.ts'
import { callerOf } from '../../rigs/gateway/keys.ts'
import { grant, granting, none, shareBench } from '../../rigs/limits/key-shares.ts'

describe('what a share lets in', () => {
  const caller = callerOf({ requestsPerMinute: 100, tokensPerMinute: 1_000, concurrencyMax: 10 })

  async function granted(amounts: Amounts, moreInMs: Amounts) {
    const { clock, shares, stop } = shareBench(granting(amounts, { moreInMs }))
    const use: KeyUse = {
      requests: createWindow(),
      tokens: createWindow(),
      running: 0,
      usedAtMs: clock.monotonicMs(),
      durationMs: 4_000,
    }
    const share = shares.follow(caller, use)
    await clock.elapse(0)
    if (share === null) throw new Error('no share')
    return { clock, shares, share, use, stop }
  }

  // Goal: a request that takes the last request, token or slot of the share fits, and one beyond does not.
  test('all of it and not one more', async () => {
    const { clock, shares, share, use, stop } = await granted([3, 500, 2], [60_000, 60_000, 60_000])
    const nowMs = clock.monotonicMs()
    const fits = (tokens: number) => shares.fits(share, { tokens, nowMs })
    expect([fits(500), fits(501)]).toEqual([true, false])
    use.requests.take(nowMs, 2)
    expect(fits(0)).toBe(true)
    use.requests.take(nowMs, 1)
    expect(fits(0)).toBe(false)
    use.requests.giveBack(nowMs, 0, 1)
    use.running = 1
    expect(fits(0)).toBe(true)
    use.running = 2
    expect(fits(0)).toBe(false)
    expect(shares.left(share, nowMs)).toEqual({ requests: 1, tokens: 500 })
    stop()
  })

  // Goal: the wait is the longest of the limits that lack, each until the share frees some or the fleet may have given
  // more, whichever comes first.
  test('how long until it fits', async () => {
    const { clock, shares, share, use, stop } = await granted([3, 500, 2], [50_000, 70_000, 9_000])
    const nowMs = clock.monotonicMs()
    const waits = (tokens: number) => [
      shares.waitMs(share, { tokens, nowMs }),
      shares.tokensWaitMs(share, { tokens, nowMs }),
    ]
    expect(waits(500)).toEqual([0, 0])
    // More than the whole share: only the fleet can help.
    expect(waits(501)).toEqual([70_000, 70_000])
    use.tokens.take(nowMs, 400)
    expect(waits(100)).toEqual([0, 0])
    expect(waits(101)).toEqual([61_000, 61_000])
    use.running = 2
    expect(waits(0)).toEqual([2_000, 0])
    use.requests.take(nowMs, 3)
    expect(waits(0)).toEqual([50_000, 0])
    expect(waits(101)).toEqual([61_000, 61_000])
    // The fleet's time for more slots has passed without an answer.
    use.requests.giveBack(nowMs, 0, 3)
    expect(shares.waitMs(share, { tokens: 0, nowMs: nowMs + 9_500 })).toBe(1)
    stop()
  })

  // Goal: a gateway that holds nothing, and where nothing runs, waits for the fleet.
  test('a share of nothing', async () => {
    const { clock, shares, share, stop } = await granted([0, 0, 0], [1_000, 2_000, 3_000])
    expect(shares.waitMs(share, { tokens: 1, nowMs: clock.monotonicMs() })).toBe(3_000)
    stop()
  })
})

describe('a request that waits', () => {
  const caller = callerOf({ requestsPerMinute: 100, tokensPerMinute: 1_000, concurrencyMax: 10 })
  const soon = { moreInMs: [1_000, 1_000, 1_000] } satisfies Partial<ShareGrant>

  // Goal: the fleet learns what the request needs, is asked again every half second after an answer without it, and
  // counts the questions from 1, so that it can drop one that arrives late.
  test('asks for what it needs', async () => {
    const { clock, enter, asked, turns, stop } = shareBench(granting([0, 0, 0], soon))
    const outcome = enter(caller, 50)
    // The round comes after two seconds, and the answer to it brings the next question.
    await clock.elapse(2_499)
    expect(turns).toEqual([1, 2])
    await clock.elapse(1)
    expect(turns).toEqual([1, 2, 3])
    expect(asked.map(asks => asks[0]?.least)).toEqual([
      [1, 50, 1],
      [1, 50, 1],
      [1, 50, 1],
    ])
    await clock.elapse(shareWaitMs)
    expect((await outcome).ok).toBe(false)
    stop()
  })

  // Goal: a request of as many tokens as the key has in a minute waits as any other does.
  test('for all of its tokens', async () => {
    const { clock, enter, scripted, stop } = shareBench(granting([0, 0, 0], soon))
    const outcome = enter(caller, 1_000)
    await clock.elapse(1_000)
    scripted.fleet = granting([100, 1_000, 10])
    await clock.elapse(1_000)
    expect((await outcome).ok).toBe(true)
    stop()
  })

  // Goal: the end of a wait makes room for another: a key whose waits all ended may wait as often again.
  test('leaves room for the next', async () => {
    const { clock, enter, limiter, stop } = shareBench(() => new Promise(() => {}))
    for (let at = 0; at < 256; at += 1) void enter(caller)
    expect(limiter.prepare(caller, 0)).toBeNull()
    await clock.elapse(shareWaitMs)
    expect(limiter.prepare(caller, 0)).not.toBeNull()
    stop()
  })

  // Goal: a key whose share is being given back and that is used meanwhile is not dropped under the request.
  test('while the share is given back', async () => {
    const { clock, admit, enter, asked, scripted, stop } = shareBench(granting([100, 1_000, 10]))
    ;(await admit(caller)).settle(none)
    await clock.elapse(59_000)
    const answer = Promise.withResolvers<void>()
    scripted.fleet = async asks => {
      const isGivingBack = asks[0]?.wanted[0] === 0
      if (isGivingBack) await answer.promise
      return asks.map(({ keyPrefix }) => grant(keyPrefix, isGivingBack ? [0, 0, 0] : [100, 1_000, 10], soon))
    }
    await clock.elapse(3_000)
    expect(asked.at(-1)?.[0]?.wanted).toEqual([0, 0, 0])
    const outcome = enter(caller)
    await clock.elapse(100)
    answer.resolve()
    await clock.elapse(1_000)
    expect((await outcome).ok).toBe(true)
    stop()
  })
})

describe('the fleet', () => {
  const caller = callerOf({ requestsPerMinute: 100, tokensPerMinute: 1_000, concurrencyMax: 10 })

  // Goal: an outage is one warning and its end one line; meanwhile the fleet is asked once a second.
  test('does not answer for a while', async () => {
    const { clock, admit, asked, logged, scripted, stop } = shareBench(granting([100, 1_000, 10]))
    ;(await admit(caller)).settle(none)
    expect(logged).toEqual([])
    scripted.fleet = () => Promise.reject(new Error('away'))
    await clock.elapse(2_000)
    const before = asked.length
    await clock.elapse(4_000)
    expect(asked.length - before).toBeWithin(2, 5)
    scripted.fleet = granting([100, 1_000, 10])
    await clock.elapse(4_000)
    expect(logged).toEqual([
      'warn the fleet does not serve rate limit shares; current shares stay in use',
      'info the fleet serves rate limit shares again',
    ])
    stop()
  })

  // Goal: keys that were given back make room for others of the same organization.
  test('gets keys back', async () => {
    const { clock, admit, enter, shares, refuse, stop } = shareBench(granting([1_000, 1_000, 1_000]))
    const enterAll = async (name: string) => {
      for (let at = 0; at < 1_024; at += 1) void enter(callerOf({ keyPrefix: `${name}${at}` })).then(ended)
      await clock.elapse(5_000)
    }
    const ended = (outcome: Awaited<ReturnType<typeof enter>>) => void (outcome.ok && outcome.ticket.settle(none))
    await enterAll('a')
    expect((await refuse(callerOf({ keyPrefix: 'b0' }))).retryAfterSeconds).toBe(10)
    await clock.elapse(60_000)
    for (let round = 0; round < 20 && shares.size > 0; round += 1) await clock.elapse(2_000)
    expect(shares.size).toBe(0)
    await admit(callerOf({ keyPrefix: 'b0' }))
    stop()
  })
})
