import { expect, test } from 'bun:test'
import { createWindow } from '../../../src/http/window.ts'
import { KeyShare, type KeyUse } from '../../../src/inference/limits/key-share.ts'
import type { Caller } from '../../../src/inference/types.ts'

const start = 1_000_000_000
const caller = {
  keyPrefix: 'aaaaaaaa',
  requestsPerMinute: 160,
  tokensPerMinute: 1_600,
  concurrencyMax: 32,
} as unknown as Caller

function shareOf(use: Partial<KeyUse> = {}) {
  const all: KeyUse = {
    requests: createWindow(),
    tokens: createWindow(),
    running: 0,
    usedAtMs: start,
    durationMs: 4_000,
    ...use,
  }
  return { share: new KeyShare(caller, all, () => {}), use: all }
}

// Goal: a new share holds nothing and asks for a sixteenth of each limit, so that a first request soon fits.
test('a share that has not been used', () => {
  const { share } = shareOf()
  expect(share.ask(start, false)).toEqual({
    keyPrefix: 'aaaaaaaa',
    share: [0, 0, 0],
    held: [0, 0, 0],
    wanted: [10, 100, 2],
    least: [0, 0, 0],
    freesInMs: [0, 0, 0],
    waitingMs: 0,
  })
})

// Goal: what is held is the last minute's use; wanted is half as much again and a sixteenth of the limit, at most all.
test('a share in use', () => {
  const { share, use } = shareOf({ running: 2 })
  use.requests.take(start, 20)
  use.tokens.take(start, 1_500)
  share.noteAdmitted({ caller, tokens: 5, nowMs: start })
  const ask = share.ask(start, false)
  expect(ask.held).toEqual([20, 1_500, 2])
  expect(ask.wanted).toEqual([40, 1_600, 5])
  expect(ask.freesInMs).toEqual([61_000, 61_000, 2_000])
})

// Goal: some of what is held is free when the first of it slides out, of requests and of tokens alike.
test('when some of a share is free again', () => {
  const { share, use } = shareOf()
  use.requests.take(start, 1)
  use.requests.take(start + 5_000, 8)
  use.tokens.take(start + 2_000, 10)
  use.tokens.take(start + 9_000, 990)
  expect(share.ask(start + 10_000, false).freesInMs).toEqual([51_000, 53_000, 0])
})

// Goal: a refused request counts as wanted, and the ask says what would admit it and for how long it has waited.
test('a refusal', () => {
  const { share, use } = shareOf({ running: 1 })
  use.requests.take(start, 4)
  use.tokens.take(start, 40)
  share.noteRefused({ caller, tokens: 60, nowMs: start }, 2_000)
  share.noteRefused({ caller, tokens: 70, nowMs: start + 1_000 }, 2_000)
  const ask = share.ask(start + 1_500, false)
  expect(ask.wanted).toEqual([19, 355, 5])
  expect(ask.least).toEqual([5, 110, 2])
  expect(ask.waitingMs).toBe(1_500)
})

// Goal: the need of a refused client ends with its admission, or 5 s after it should have come again.
test('the end of a need', () => {
  const { share } = shareOf()
  share.noteRefused({ caller, tokens: 60, nowMs: start }, 2_000)
  expect(share.ask(start + 6_999, false).least).toEqual([1, 60, 1])
  expect(share.ask(start + 7_000, false).least).toEqual([0, 0, 0])
  share.noteNeed({ tokens: 9, nowMs: start + 8_000 }, 2_000)
  expect(share.ask(start + 8_000, false).least).toEqual([1, 9, 1])
  share.noteAdmitted({ caller, tokens: 9, nowMs: start + 8_000 })
  expect(share.ask(start + 8_000, false).least).toEqual([0, 0, 0])
})

// Goal: the peak of requests at once fades by half with each ask, and never below what runs now.
test('the peak', () => {
  const { share, use } = shareOf({ running: 8 })
  share.noteAdmitted({ caller, tokens: 1, nowMs: start })
  use.running = 1
  expect([1, 2, 3, 4, 5].map(() => share.ask(start, false).wanted[2])).toEqual([14, 8, 5, 4, 4])
})

// Goal: a share is given back only when it is idle for the whole window and the caller allows it.
test('giving back', () => {
  const { share } = shareOf()
  share.amounts = [5, 50, 1]
  expect(share.isIdle(start + 60_999)).toBe(false)
  expect(share.isIdle(start + 61_000)).toBe(true)
  expect(share.ask(start + 61_000, false).share).toEqual([5, 50, 1])
  expect(share.ask(start + 61_000, true)).toMatchObject({ share: [0, 0, 0], wanted: [0, 0, 0] })
})

// Goal: anything under way, waiting or within the window keeps a share from being idle.
test.each<[string, (share: KeyShare, use: KeyUse) => void]>([
  ['a request runs', (_share, use) => Object.assign(use, { running: 1 })],
  ['a request waits', share => Object.assign(share, { waiters: 1 })],
  ['a request in the window', (_share, use) => use.requests.take(start + 61_000, 1)],
  ['tokens in the window', (_share, use) => use.tokens.take(start + 61_000, 1)],
  ['a refused client may come again', share => share.noteNeed({ tokens: 1, nowMs: start + 61_000 }, 0)],
])('not idle: %s', (_what, change) => {
  const { share, use } = shareOf()
  expect(share.isIdle(start + 61_000)).toBe(true)
  change(share, use)
  expect(share.isIdle(start + 61_000)).toBe(false)
})
