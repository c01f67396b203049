// Goal: a certificate is ordered again before a third of its time is left, whatever the draw, and failures never make a
// server that limits orders close its door.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { askAgainMs, renewAtMs, renewWithinMs, retryAtMs } from '../../../src/http/acme/renewal.plan.ts'

const dayMs = 86_400_000
const draw = fc.double({ min: 0, max: 1, noNaN: true })

test('goal: with at least a third of the time left, not much earlier, and never at once', () => {
  fc.assert(
    fc.property(draw, fc.integer({ min: 1, max: 800 }), (draw, days) => {
      const dates = { notBeforeMs: 0, notAfterMs: days * dayMs }
      const atMs = renewAtMs(dates, { nowMs: 0, draw })
      expect(dates.notAfterMs - atMs).toBeGreaterThanOrEqual((days * dayMs) / 3 - 1)
      expect(atMs).toBeGreaterThanOrEqual((days * dayMs) / 2)
    }),
  )
  // A server that issues for a minute does not make us order each minute.
  expect(renewAtMs({ notBeforeMs: 0, notAfterMs: 60_000 }, { nowMs: 0, draw: 1 })).toBe(3_600_000)
})

test('goal: at most four failures of a name within an hour, then ever fewer, twelve hours apart at last', () => {
  const attempts = [0]
  for (let failures = 1; failures <= 12; failures += 1) {
    attempts.push(retryAtMs({ failures, retryAfterMs: null }, { nowMs: attempts.at(-1) ?? 0, draw: 0 }))
  }
  expect(attempts.filter(atMs => atMs < 3_600_000).length).toBeLessThanOrEqual(4)
  expect((attempts[12] ?? 0) - (attempts[11] ?? 0)).toBeCloseTo(0.8 * 12 * 3_600_000)
})

test('goal: a time that the server names is kept, but not for ever', () => {
  const now = { nowMs: 1_000, draw: 0.5 }
  expect(retryAtMs({ failures: 1, retryAfterMs: dayMs }, now)).toBe(1_000 + dayMs)
  expect(retryAtMs({ failures: 1, retryAfterMs: 1 }, now)).toBe(1_000 + 300_000)
  expect(retryAtMs({ failures: 1, retryAfterMs: 1e15 }, now)).toBe(1_000 + 7 * dayMs)
})

test('goal: a suggested window is followed: within it, at once if it is past, and never until the certificate ends', () => {
  const dates = { notBeforeMs: 0, notAfterMs: 60 * dayMs, renewAtMs: 38 * dayMs }
  const at = (startMs: number, endMs: number, draw = 0.5) => renewWithinMs({ startMs, endMs }, dates, draw)
  // The moment that was chosen before stays.
  expect(at(37 * dayMs, 39 * dayMs)).toBe(38 * dayMs)
  expect(at(10 * dayMs, 12 * dayMs)).toBe(11 * dayMs)
  expect([at(10 * dayMs, 12 * dayMs, 0), at(10 * dayMs, 12 * dayMs, 1)]).toEqual([10 * dayMs, 12 * dayMs])
  expect(at(-2 * dayMs, -dayMs)).toBe(-1.5 * dayMs)
  expect(at(70 * dayMs, 80 * dayMs)).toBe(50 * dayMs)
})

test('goal: a server is asked again when it says so, but not within a minute and at least once a day', () => {
  const waits = [null, 0, 3_600_000, 30 * dayMs].map(wish => askAgainMs(wish, 1_000) - 1_000)
  expect(waits).toEqual([6 * 3_600_000, 60_000, 3_600_000, dayMs])
})
