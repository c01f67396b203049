// Goal: a sign-in at the identity provider that has begun counts in its browser, at its origin, for 10 minutes, once.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { Attempts } from '../../../src/console/oidc/attempts.ts'

const origin = 'https://localhost:8444'

function open() {
  const clock = createManualClock()
  return { clock, attempts: new Attempts({ clock, random: systemRandom }) }
}

test('goal: the same token gives the same secrets until it is 10 minutes old, and not at another origin', () => {
  const { clock, attempts } = open()
  const { token, attempt } = attempts.begin(origin)
  expect(new Set(Object.values(attempt)).size).toBe(3)
  expect(attempts.find(token, origin)).toEqual(attempt)
  expect(attempts.find(token, 'https://console.example.org')).toBeNull()
  clock.advance(599_999)
  expect(attempts.find(token, origin)).toEqual(attempt)
  clock.advance(1)
  expect(attempts.find(token, origin)).toBeNull()
})

test('goal: a token that was changed, or that another daemon made, is none', () => {
  const { attempts } = open()
  const { token } = attempts.begin(origin)
  for (const wrong of [
    '',
    'x',
    token.slice(1),
    `${token}A`,
    token.replace(/^./, first => (first === 'A' ? 'B' : 'A')),
  ]) {
    expect([wrong, attempts.find(wrong, origin)]).toEqual([wrong, null])
  }
  expect(open().attempts.find(token, origin)).toBeNull()
})

test('goal: a completed sign-in counts no more, and others are not affected', () => {
  const { attempts } = open()
  const { token } = attempts.begin(origin)
  const other = attempts.begin(origin)
  expect([attempts.complete(token), attempts.complete(token)]).toEqual([true, false])
  expect([attempts.find(token, origin), attempts.find(other.token, origin)]).toEqual([null, other.attempt])
})
