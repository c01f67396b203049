// Goal: a challenge is good for two minutes, for one purpose, at the daemon that made it, and once.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { toBase64Url } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { Challenges, challengeLifeMs } from '../../../src/console/passkeys/challenges.ts'

const open = (clock = createManualClock()) => ({ clock, challenges: new Challenges({ clock, random: systemRandom }) })

test('goal: it is good until its time is over, to the millisecond', () => {
  const { clock, challenges } = open()
  clock.advance(5_000)
  const text = toBase64Url(challenges.make('log-in'))
  expect(challengeLifeMs).toBe(120_000)
  clock.advance(119_999)
  expect(challenges.isGood(text, 'log-in')).toBe(true)
  clock.advance(1)
  expect(challenges.isGood(text, 'log-in')).toBe(false)
})

test('goal: for another purpose, at another daemon, with any byte changed, or cut it is not good', () => {
  const { clock, challenges } = open()
  const bytes = challenges.make('log-in')
  expect(bytes).toHaveLength(56)
  expect(challenges.isGood(toBase64Url(bytes), 'log-in')).toBe(true)
  expect(challenges.isGood(toBase64Url(bytes), 'log-in ')).toBe(false)
  expect(open(clock).challenges.isGood(toBase64Url(bytes), 'log-in')).toBe(false)
  for (let at = 0; at < bytes.length; at += 1) {
    const changed = bytes.with(at, (bytes[at] ?? 0) ^ 1)
    expect([at, challenges.isGood(toBase64Url(changed), 'log-in')]).toEqual([at, false])
  }
  for (const text of ['', '!', toBase64Url(bytes.slice(1)), toBase64Url(new Uint8Array([...bytes, 0]))]) {
    expect([text, challenges.isGood(text, 'log-in')]).toEqual([text, false])
  }
  expect(toBase64Url(challenges.make('log-in'))).not.toBe(toBase64Url(bytes))
})

test('goal: a used one is good no more, and is used once', () => {
  const { challenges } = open()
  const text = toBase64Url(challenges.make('a'))
  expect([challenges.use(text), challenges.isGood(text, 'a'), challenges.use(text)]).toEqual([true, false, false])
  expect(challenges.use('!')).toBe(false)
})

test('goal: 4,096 used ones are remembered, no more are taken, and each place is free again when its time is over', () => {
  const { clock, challenges } = open()
  const make = () => toBase64Url(challenges.make('a'))
  const first = make()
  expect(challenges.use(first)).toBe(true)
  clock.advance(1)
  for (let count = 1; count < 4_096; count += 1) expect(challenges.use(make())).toBe(true)
  const next = make()
  expect([challenges.use(next), challenges.isGood(next, 'a')]).toEqual([false, true])
  clock.advance(119_998)
  expect(challenges.use(next)).toBe(false)
  clock.advance(1)
  expect([challenges.use(next), challenges.use(make())]).toEqual([true, false])
})
