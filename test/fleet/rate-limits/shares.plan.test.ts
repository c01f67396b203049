// The division of a limit among hosts, over random demands.

import { describe, expect, test } from 'bun:test'
import { casesOf } from '../../../scripts/rigs/all.ts'
import { createDraw } from '../../../scripts/rigs/draw.ts'
import { planShares, reserveOf, type Sharer, starvedMs } from '../../../src/fleet/rate-limits/shares.plan.ts'

const sharer = (id: string, wanted: number, waits: Partial<Sharer> = {}): Sharer => ({
  id,
  wanted,
  least: 0,
  waitingMs: 0,
  ...waits,
})
const partsOf = (limit: number, ...sharers: readonly Sharer[]) => Object.fromEntries(planShares(limit, sharers))
const sumOf = (parts: Readonly<Record<string, number>>) => Object.values(parts).reduce((sum, part) => sum + part, 0)

describe('parts of a limit', () => {
  // Goal: whatever hosts want, their parts are whole, not negative, and together at most the limit; and every host
  // computes the same, whatever the order of its rows.
  test('random demands: never above the limit, the same for every host', () => {
    const draw = createDraw(7)
    for (let round = 0; round < casesOf(20_000); round += 1) {
      const limit = draw(3) === 0 ? draw(4) : draw(100_000)
      const sharers = Array.from({ length: 1 + draw(8) }, (_, index) => ({
        id: `h${index}`,
        wanted: draw(2) === 0 ? draw(limit + 1) : draw(3 * limit + 2),
        least: draw(2) * draw(2 * limit + 2),
        waitingMs: draw(3) * draw(10_000),
      }))
      const parts = partsOf(limit, ...sharers)
      expect(sumOf(parts)).toBeLessThanOrEqual(limit)
      expect(Object.keys(parts)).toHaveLength(sharers.length)
      for (const part of Object.values(parts)) expect(Number.isInteger(part) && part >= 0).toBe(true)
      expect(partsOf(limit, ...sharers.toReversed())).toEqual(parts)
    }
  })

  // Goal: nothing of the limit lies idle but the reserve, which is a tenth at most.
  test('all of it is given out but for the reserve', () => {
    const draw = createDraw(8)
    for (let round = 0; round < casesOf(5_000); round += 1) {
      const limit = draw(10_000)
      const sharers = Array.from({ length: 1 + draw(6) }, (_, index) => sharer(`h${index}`, draw(2 * limit + 1)))
      expect(sumOf(partsOf(limit, ...sharers))).toBe(limit - reserveOf(limit))
      expect(reserveOf(limit)).toBeLessThanOrEqual(limit / 10)
    }
  })

  // Goal: a host that is hammered takes nothing from one that wants no more than its even part.
  test('small wants are met before large ones', () => {
    const draw = createDraw(9)
    for (let round = 0; round < casesOf(5_000); round += 1) {
      const limit = 10 + draw(10_000)
      const sharers = Array.from({ length: 2 + draw(5) }, (_, index) => sharer(`h${index}`, draw(2 * limit)))
      const parts = partsOf(limit, ...sharers)
      const even = Math.floor((limit - reserveOf(limit)) / sharers.length)
      for (const { id, wanted } of sharers) expect(parts[id]).toBeGreaterThanOrEqual(Math.min(wanted, even))
    }
    expect(partsOf(100, sharer('a', 100), sharer('b', 20))).toEqual({ a: 75, b: 20 })
    expect(partsOf(100, sharer('a', 100))).toEqual({ a: 95 })
    expect(partsOf(100, sharer('a', 5), sharer('b', 5))).toEqual({ a: 48, b: 47 })
  })

  // Goal: a limit of one goes to the host that has waited longest, so that nobody starves.
  test('what cannot be divided goes to the one that starves for longest', () => {
    const waits = (waitingMs: number) => ({ least: 1, waitingMs })
    expect(partsOf(1, sharer('a', 1), sharer('b', 1))).toEqual({ a: 0, b: 1 })
    expect(partsOf(1, sharer('a', 1, waits(starvedMs)), sharer('b', 1))).toEqual({ a: 1, b: 0 })
    expect(partsOf(1, sharer('a', 1, waits(5_000)), sharer('b', 1, waits(6_000)))).toEqual({ a: 0, b: 1 })
    expect(partsOf(1, sharer('a', 1, waits(7_000)), sharer('b', 1, waits(6_000)))).toEqual({ a: 1, b: 0 })
    // Two have waited equally long: the first by name. Before 4 s nobody starves.
    expect(partsOf(1, sharer('b', 1, waits(5_000)), sharer('a', 1, waits(5_000)))).toEqual({ a: 1, b: 0 })
    expect(partsOf(1, sharer('a', 1, waits(3_999)), sharer('b', 1))).toEqual({ a: 0, b: 1 })
    // A large request: all of the limit, the reserve too.
    expect(partsOf(100, sharer('a', 100, { least: 100, waitingMs: 9_000 }), sharer('b', 90))).toEqual({ a: 100, b: 0 })
    // More than there is: nobody can help it, and it holds nobody up.
    expect(partsOf(100, sharer('a', 50, { least: 101, waitingMs: 9_000 }), sharer('b', 90))).toEqual({ a: 47, b: 48 })
  })
})
