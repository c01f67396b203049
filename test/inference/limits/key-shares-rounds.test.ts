// Shares of keys' limits: when the fleet is asked for which keys, and what an answer, or none, changes.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { Amounts, ShareAnswer, ShareAsk } from '../../../src/contract/vm/shares.ts'
import { createWindow } from '../../../src/http/window.ts'
import type { KeyShare, KeyUse } from '../../../src/inference/limits/key-share.ts'
import { KeyShares } from '../../../src/inference/limits/key-shares.ts'
import { callerOf } from '../../rigs/gateway/keys.ts'
import { grant } from '../../rigs/limits/key-shares.ts'

type ShareRequest = { readonly atMs: number; readonly asks: readonly ShareAsk[] }
type Answer = (asks: readonly ShareAsk[]) => ShareAnswer | Promise<ShareAnswer>

const limits = { requestsPerMinute: 100, tokensPerMinute: 1_000, concurrencyMax: 10 }
const goodMs = 300_000
/** Grants each key the same; more may come in a second. */
const granting =
  (share: Amounts, changes: object = {}): Answer =>
  asks => ({
    goodMs,
    grants: asks.map(({ keyPrefix }) => grant(keyPrefix, share, { moreInMs: [1_000, 1_000, 1_000], ...changes })),
  })
const away: Answer = () => Promise.reject(new Error('away'))
const all: Amounts = [100, 1_000, 10]

/** `startMs`: of the monotonic clock, which is not 0 on a host that has run for a while. */
function bench(answer: Answer, startMs = 10_000) {
  const clock = createManualClock()
  clock.advance(startMs)
  const asked: ShareRequest[] = []
  const script = { answer }
  const shares = new KeyShares({
    isShared: () => true,
    keysPerAskMax: 3,
    clock,
    log: silentLogger,
    renew: async (_turn, asks) => {
      asked.push({ atMs: clock.monotonicMs() - startMs, asks: structuredClone([...asks]) })
      return script.answer(asks)
    },
  })
  const stopping = new AbortController()
  const run = shares.run(stopping.signal)
  const follow = (keyPrefix = 'aaaaaaaa', change: Partial<KeyUse> = {}): KeyShare => {
    const use: KeyUse = {
      requests: createWindow(),
      tokens: createWindow(),
      running: 0,
      usedAtMs: clock.monotonicMs(),
      durationMs: 4_000,
      ...change,
    }
    const share = shares.follow(callerOf({ ...limits, keyPrefix }), use)
    if (share === null) throw new Error('no room')
    return share
  }
  const prepare = (share: KeyShare, tokens = 0) =>
    shares.prepare(share, {
      caller: callerOf({ ...limits, keyPrefix: share.prefix }),
      tokens,
      nowMs: clock.monotonicMs(),
    })
  const times = () => asked.map(({ atMs }) => atMs)
  const stop = async () => {
    stopping.abort()
    await run
  }
  return { clock, shares, asked, script, follow, prepare, times, stop }
}

test('goal: a question has at most as many keys as fit, no question is empty, and a round asks for all', async () => {
  const { clock, asked, follow, stop } = bench(granting(all))
  for (let at = 0; at < 6; at += 1) follow(`key${at}`)
  await clock.elapse(1_000)
  asked.length = 0
  await clock.elapse(2_000)
  expect(asked.map(({ asks }) => asks.map(({ keyPrefix }) => keyPrefix))).toEqual([
    ['key0', 'key1', 'key2'],
    ['key3', 'key4', 'key5'],
  ])
  follow('key6')
  await clock.elapse(200)
  asked.length = 0
  await clock.elapse(2_000)
  expect(asked.map(({ asks }) => asks.length)).toEqual([3, 3, 1])
  await stop()
})

test('goal: without an answer a round ends, and the fleet is asked again a second later, until it answers', async () => {
  const { clock, asked, script, follow, times, stop } = bench(granting(all))
  for (let at = 0; at < 6; at += 1) follow(`key${at}`)
  await clock.elapse(1_000)
  asked.length = 0
  script.answer = away
  // A round begins two seconds after the last one, which was at 0.
  await clock.elapse(1_000)
  expect(times()).toEqual([2_000])
  await clock.elapse(6_500)
  expect(times()).toEqual([2_000, 4_000, 6_000, 8_000])
  // A key that comes into use meanwhile is asked for then.
  follow('key6')
  await clock.elapse(499)
  expect(times()).toHaveLength(4)
  script.answer = granting(all)
  await clock.elapse(1)
  expect(asked.slice(4).map(({ atMs, asks }) => [atMs, asks.map(({ keyPrefix }) => keyPrefix)])).toEqual([
    [9_000, ['key6']],
  ])
  await stop()
})

test('goal: an answer that came too late changes nothing, and one that is good for a moment does', async () => {
  const { clock, shares, script, follow, stop } = bench(() => ({ goodMs: 0, grants: [] }))
  const share = follow()
  await clock.elapse(100)
  expect([shares.size, share.isDropped]).toEqual([1, false])
  script.answer = asks => ({ goodMs: 1, grants: asks.map(({ keyPrefix }) => grant(keyPrefix, all)) })
  await clock.elapse(2_000)
  expect(share.amounts).toEqual(all)
  await stop()
})

test('goal: a key that the fleet does not know is dropped, and is asked for no more, though a request waited', async () => {
  const { clock, shares, asked, script, follow, prepare, stop } = bench(granting([0, 0, 0]))
  const share = follow()
  follow('bbbbbbbb')
  await clock.elapse(1_900)
  const waited = prepare(share)
  expect(waited).not.toBeNull()
  script.answer = asks => ({
    goodMs,
    grants: asks.flatMap(({ keyPrefix }) => (keyPrefix === 'bbbbbbbb' ? [grant(keyPrefix, all)] : [])),
  })
  await clock.elapse(100)
  await waited
  expect([shares.size, share.isDropped, share.amounts]).toEqual([1, true, [0, 0, 0]])
  asked.length = 0
  await clock.elapse(6_000)
  expect(new Set(asked.flatMap(({ asks }) => asks.map(({ keyPrefix }) => keyPrefix)))).toEqual(new Set(['bbbbbbbb']))
  expect(prepare(share)).toBeNull()
  await stop()
})

test('goal: a key that is dropped while another request of it comes is asked for no more', async () => {
  const { clock, asked, script, follow, prepare, stop } = bench(granting([0, 0, 0]))
  const share = follow()
  follow('bbbbbbbb')
  await clock.elapse(1_990)
  script.answer = late(asks => ({
    goodMs,
    grants: asks.flatMap(({ keyPrefix }) => (keyPrefix === 'bbbbbbbb' ? [grant(keyPrefix, all)] : [])),
  }))
  // The question is under way from 2000 to 2050.
  await clock.elapse(30)
  void prepare(share)
  await clock.elapse(30)
  expect(share.isDropped).toBe(true)
  asked.length = 0
  await clock.elapse(6_000)
  expect(new Set(asked.flatMap(({ asks }) => asks.map(({ keyPrefix }) => keyPrefix)))).toEqual(new Set(['bbbbbbbb']))
  await stop()

  /** Answers after 50 ms. */
  function late(answer: Answer): Answer {
    return async asks => {
      await clock.sleep(50)
      return answer(asks)
    }
  }
})

test('goal: what another host wants is asked about at once, though a request of this one waits to ask', async () => {
  const { clock, script, follow, prepare, times, stop } = bench(granting([0, 0, 0]))
  const share = follow()
  await clock.elapse(500)
  script.answer = async asks => {
    await clock.sleep(50)
    script.answer = granting([0, 0, 0])
    return granting([0, 0, 0], { isWanted: true })(asks)
  }
  void prepare(share)
  // Answered at 550, and asked again 100 ms after the question; the request would ask at 1050.
  await clock.elapse(400)
  expect(times()).toEqual([0, 500, 600])
  await stop()
})

test('goal: a request that comes asks at once, though another one is to ask later', async () => {
  const { clock, script, follow, prepare, times, stop } = bench(granting([0, 0, 0]))
  const share = follow()
  await clock.elapse(300)
  script.answer = async asks => {
    await clock.sleep(50)
    return granting([0, 0, 0])(asks)
  }
  void prepare(share)
  // Answered at 350: the first asks again at 850.
  await clock.elapse(250)
  expect(times()).toEqual([0, 300])
  void prepare(share)
  await clock.elapse(10)
  expect(times()).toEqual([0, 300, 550])
  await clock.elapse(100)
  await stop()
})

test('goal: a request waits three seconds from when it came, for more that is to come within four', async () => {
  for (const [moreInMs, waits] of [
    [4_000, true],
    [4_001, false],
  ] as const) {
    const { clock, follow, prepare, stop } = bench(granting([0, 0, 0], { moreInMs: [moreInMs, moreInMs, moreInMs] }))
    const share = follow()
    await clock.elapse(0)
    expect([moreInMs, prepare(share) !== null]).toEqual([moreInMs, waits])
    await stop()
  }
  // The question never ends, and so neither does the run.
  const { clock, follow, prepare } = bench(() => new Promise(() => {}))
  const share = follow()
  let isOver = false
  void prepare(share)?.then(() => {
    isOver = true
  })
  await clock.elapse(2_999)
  expect([isOver, share.waiters]).toEqual([false, 1])
  await clock.elapse(1)
  expect([isOver, share.waiters]).toEqual([true, 0])
})

test('goal: of what is granted and what is to be kept the smaller is in force, of each limit by itself', async () => {
  const { clock, follow, stop } = bench(granting([60, 700, 5], { keep: [80, 500, 9] }))
  const share = follow()
  await clock.elapse(0)
  expect(share.amounts).toEqual([60, 500, 5])
  await stop()
})

test('goal: shares are void at the very moment at which they end, and the fleet hears so', async () => {
  const { clock, shares, asked, script, follow, stop } = bench(granting(all))
  // A request runs, so that it is not idle.
  const share = follow('aaaaaaaa', { running: 1 })
  await clock.elapse(0)
  script.answer = away
  await clock.elapse(goodMs - 1)
  expect(shares.fits(share, { tokens: 1, nowMs: clock.monotonicMs() })).toBe(true)
  await clock.elapse(1)
  expect(shares.fits(share, { tokens: 1, nowMs: clock.monotonicMs() })).toBe(false)
  const last = asked.at(-1)
  expect([last?.atMs, last?.asks[0]?.share]).toEqual([goodMs, [0, 0, 0]])
  expect(asked.at(-2)?.asks[0]?.share).toEqual([...all])
  await stop()
})

test('goal: waits of a millisecond are waits, and one running request takes as long as requests take', async () => {
  const { clock, shares, follow, stop } = bench(granting([3, 500, 1], { moreInMs: [9_000, 9_000, 9_000] }))
  const share = follow()
  await clock.elapse(0)
  const nowMs = clock.monotonicMs()
  const { use } = share
  use.running = 1
  expect(shares.waitMs(share, { tokens: 0, nowMs })).toBe(4_000)
  use.durationMs = 0.5
  expect(shares.waitMs(share, { tokens: 0, nowMs })).toBe(1)
  use.running = 0
  use.tokens.take(nowMs, 500)
  // An amount leaves when its whole second is 61 seconds old.
  expect(shares.tokensWaitMs(share, { tokens: 1, nowMs: nowMs + 60_999 })).toBe(1)
  await stop()
})

test('goal: keys that come into use leave no timer behind, nor does the end', async () => {
  const { clock, follow, stop } = bench(granting(all))
  for (let at = 0; at < 20; at += 1) {
    follow(`key${at}`)
    await clock.elapse(150)
    expect(clock.pending()).toHaveLength(1)
  }
  await stop()
  await clock.elapse(0)
  expect(clock.pending()).toEqual([])
})

test('goal: the end of a wait leaves no timer behind', async () => {
  const { clock, script, follow, prepare, stop } = bench(granting([0, 0, 0]))
  const share = follow()
  await clock.elapse(300)
  script.answer = granting(all)
  await prepare(share)
  await clock.elapse(0)
  // The run's own alone.
  expect(clock.pending()).toHaveLength(1)
  await stop()
})
