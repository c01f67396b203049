// Billing periods, ready time and money.

import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { casesOf } from '../../scripts/rigs/all.ts'
import { iso } from '../../src/base/clock.ts'
import { billingPeriod, formatUsd, hours, parseUsd, periodDaysMax, readyMs } from '../../src/instances/billing.ts'
import type { InstanceStatus } from '../../src/store/directory/instance.table.ts'

const dayMs = 24 * 60 * 60 * 1000
const at = (text: string) => Date.parse(text)

describe('periods', () => {
  const PERIODS: readonly (readonly [signup: string, now: string, start: string, end: string])[] = [
    ['2026-01-15T10:00:00.000Z', '2026-01-15T10:00:00.000Z', '2026-01-15T10:00:00.000Z', '2026-02-15T10:00:00.000Z'],
    ['2026-01-15T10:00:00.000Z', '2026-02-15T09:59:59.999Z', '2026-01-15T10:00:00.000Z', '2026-02-15T10:00:00.000Z'],
    ['2026-01-15T10:00:00.000Z', '2026-02-15T10:00:00.000Z', '2026-02-15T10:00:00.000Z', '2026-03-15T10:00:00.000Z'],
    ['2026-01-31T23:59:59.999Z', '2026-02-20T00:00:00.000Z', '2026-01-31T23:59:59.999Z', '2026-02-28T23:59:59.999Z'],
    ['2026-01-31T23:59:59.999Z', '2026-02-28T23:59:59.999Z', '2026-02-28T23:59:59.999Z', '2026-03-31T23:59:59.999Z'],
    ['2026-01-31T00:00:00.000Z', '2026-04-30T00:00:00.000Z', '2026-04-30T00:00:00.000Z', '2026-05-31T00:00:00.000Z'],
    ['2026-01-29T00:00:00.000Z', '2026-03-01T00:00:00.000Z', '2026-02-28T00:00:00.000Z', '2026-03-29T00:00:00.000Z'],
    ['2026-01-30T12:00:00.000Z', '2028-02-29T11:59:59.999Z', '2028-01-30T12:00:00.000Z', '2028-02-29T12:00:00.000Z'],
    ['2026-01-30T12:00:00.000Z', '2028-02-29T12:00:00.000Z', '2028-02-29T12:00:00.000Z', '2028-03-30T12:00:00.000Z'],
    ['2024-02-29T06:00:00.000Z', '2025-03-01T00:00:00.000Z', '2025-02-28T06:00:00.000Z', '2025-03-29T06:00:00.000Z'],
    ['2024-02-29T06:00:00.000Z', '2028-02-29T06:00:00.000Z', '2028-02-29T06:00:00.000Z', '2028-03-29T06:00:00.000Z'],
    ['2026-12-31T00:00:00.000Z', '2027-01-15T00:00:00.000Z', '2026-12-31T00:00:00.000Z', '2027-01-31T00:00:00.000Z'],
    ['2026-11-20T08:30:00.000Z', '2020-01-01T00:00:00.000Z', '2026-11-20T08:30:00.000Z', '2026-12-20T08:30:00.000Z'],
    ['2026-11-20T08:30:00.000Z', '2026-11-01T00:00:00.000Z', '2026-11-20T08:30:00.000Z', '2026-12-20T08:30:00.000Z'],
  ]
  for (const [signup, now, start, end] of PERIODS) {
    // Goal: month lengths, leap years, the very first and last millisecond, and a clock before signup.
    test(`signup ${signup}, now ${now}`, () => {
      const { startMs, endMs } = billingPeriod(at(signup), at(now))
      expect([iso(startMs), iso(endMs)]).toEqual([start, end])
    })
  }

  const instant = fc.integer({ min: Date.UTC(1990, 0, 1), max: Date.UTC(2120, 0, 1) })
  const laterBy = fc.integer({ min: 0, max: 40 * 366 * dayMs })

  // Goal: every moment since signup is in exactly one period; periods touch, have 28 to 31 days, and keep the time of
  // day.
  test('periods tile the time after signup', () => {
    fc.assert(
      fc.property(instant, laterBy, (signupMs, afterMs) => {
        const nowMs = signupMs + afterMs
        const { startMs, endMs } = billingPeriod(signupMs, nowMs)
        expect(startMs <= nowMs && nowMs < endMs && startMs >= signupMs).toBe(true)
        expect(billingPeriod(signupMs, startMs)).toEqual({ startMs, endMs })
        expect(billingPeriod(signupMs, endMs - 1)).toEqual({ startMs, endMs })
        expect(billingPeriod(signupMs, endMs).startMs).toBe(endMs)
        expect((endMs - startMs) % dayMs).toBe(0)
        expect((endMs - startMs) / dayMs).toBeGreaterThanOrEqual(28)
        expect((endMs - startMs) / dayMs).toBeLessThanOrEqual(periodDaysMax)
        const [signup, start] = [new Date(signupMs), new Date(startMs)]
        const lastDay = new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + 1, 0)).getUTCDate()
        expect(start.getUTCDate()).toBe(Math.min(signup.getUTCDate(), lastDay))
      }),
      { numRuns: casesOf(3_000) },
    )
  })
})

describe('ready time', () => {
  const period = { startMs: 1_000, endMs: 2_000, nowMs: 1_800 }
  type Step = readonly [instance: string, status: InstanceStatus, atMs: number]
  const CASES: Record<string, readonly [steps: readonly Step[], totalMs: number]> = {
    nothing: [[], 0],
    'never ready': [
      [
        ['a', 'provisioning', 1_100],
        ['a', 'failed', 1_200],
      ],
      0,
    ],
    'ready and deleted inside': [
      [
        ['a', 'provisioning', 1_000],
        ['a', 'ready', 1_100],
        ['a', 'terminating', 1_250],
        ['a', 'terminated', 1_700],
      ],
      150,
    ],
    'ready and failed inside': [
      [
        ['a', 'ready', 1_100],
        ['a', 'failed', 1_300],
      ],
      200,
    ],
    'still ready': [[['a', 'ready', 1_100]], 700],
    'ready since before the period': [[['a', 'ready', 10]], 800],
    'over the start': [
      [
        ['a', 'ready', 900],
        ['a', 'terminating', 1_100],
      ],
      100,
    ],
    'all before the period': [
      [
        ['a', 'ready', 10],
        ['a', 'terminating', 999],
      ],
      0,
    ],
    'ended at the start': [
      [
        ['a', 'ready', 10],
        ['a', 'terminating', 1_000],
      ],
      0,
    ],
    'two at once count twice': [
      [
        ['a', 'ready', 1_100],
        ['b', 'ready', 1_200],
        ['a', 'terminating', 1_300],
        ['b', 'failed', 1_400],
      ],
      400,
    ],
    'changed in the future of a clock that jumped back': [[['a', 'ready', 1_900]], 0],
    'deleted in that future': [
      [
        ['a', 'ready', 1_100],
        ['a', 'terminating', 1_950],
      ],
      700,
    ],
    'deleted before it was ready': [
      [
        ['a', 'ready', 1_500],
        ['a', 'terminating', 1_200],
      ],
      0,
    ],
  }
  for (const [what, [steps, totalMs]] of Object.entries(CASES)) {
    // Goal: an instance counts from ready to its next change, within the period and not beyond now, never negatively.
    test(what, () => {
      const changes = steps.map(([instanceId, status, atMs]) => ({ instanceId, status, atMs }))
      expect(readyMs(changes, period)).toBe(totalMs)
    })
  }

  // Goal: splitting a period anywhere keeps the sum, and no instance counts for more than the elapsed time.
  test('hours add up over periods', () => {
    const moment = fc.integer({ min: 0, max: 10_000 })
    const lives = fc.array(fc.tuple(moment, moment, fc.boolean()), { maxLength: 8 })
    fc.assert(
      fc.property(lives, moment, moment, moment, (spans, a, b, c) => {
        const [startMs = 0, middleMs = 0, endMs = 0] = [a, b, c].sort((x, y) => x - y)
        const changes = spans.flatMap(([from, to, ends], i) => [
          { instanceId: `i${i}`, status: 'ready' as const, atMs: Math.min(from, to) },
          ...(ends ? [{ instanceId: `i${i}`, status: 'terminating' as const, atMs: Math.max(from, to) }] : []),
        ])
        const within = (fromMs: number, toMs: number) =>
          readyMs(changes, { startMs: fromMs, endMs: toMs, nowMs: 20_000 })
        const whole = within(startMs, endMs)
        expect(within(startMs, middleMs) + within(middleMs, endMs)).toBe(whole)
        expect(whole).toBeLessThanOrEqual(spans.length * (endMs - startMs))
        expect(whole).toBeGreaterThanOrEqual(0)
      }),
    )
  })

  // Goal: hours are exact to the millisecond.
  test('hours', () => {
    expect([hours(0), hours(1), hours(900_000), hours(3_600_000), hours(31 * dayMs)]).toEqual([
      0,
      1 / 3_600_000,
      0.25,
      1,
      744,
    ])
  })
})

describe('money', () => {
  // Goal: amounts have at least two decimals, at most six, and nothing is lost or rounded.
  test('amounts', () => {
    const AMOUNTS = {
      '0': '0.00',
      '0.00': '0.00',
      '7': '7.00',
      '49.9': '49.90',
      '0.125': '0.125',
      '0.000001': '0.000001',
      '0.100000': '0.10',
      '999999999999.999999': '999999999999.999999',
    }
    for (const [text, shown] of Object.entries(AMOUNTS)) expect(formatUsd(parseUsd(text))).toBe(shown)
    for (const text of ['', '-1', '1.', '.5', '1.0000001', '1e3', '1,5'])
      expect(() => parseUsd(text)).toThrow('invariant broken')
    expect(() => formatUsd(-1n)).toThrow('invariant broken')
  })

  // Goal: every whole number of micro-dollars survives being shown and read again.
  test('micro-dollars round-trip', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 10n ** 18n }), microUsd => {
        expect(formatUsd(microUsd)).toMatch(/^(0|[1-9][0-9]*)\.[0-9]{2,6}$/)
        expect(parseUsd(formatUsd(microUsd))).toBe(microUsd)
      }),
    )
  })
})
