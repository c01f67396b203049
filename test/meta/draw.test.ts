// Draws of tests that take faults and steps at random.

import { expect, test } from 'bun:test'
import { createDraw } from '../../scripts/rigs/draw.ts'

// Goal: a seed repeats its draws and no other's, neighbours included, and a long run does not go round in a circle.
test('draws', () => {
  const drawn = (seed: number, count: number) => {
    const draw = createDraw(seed)
    return Array.from({ length: count }, () => draw(1_000))
  }
  expect(drawn(9, 100)).toEqual(drawn(9, 100))
  expect(drawn(9, 100)).not.toEqual(drawn(10, 100))
  for (const seed of [0, 9, 2026, 59_426]) {
    const draws = drawn(seed, 60_000)
    // In a circle that is shorter than this, its second half would be somewhere in what came before.
    const tail = draws.slice(-20).join()
    expect(draws.join().indexOf(tail)).toBe(draws.join().length - tail.length)
    const counts = Map.groupBy(draws, number => Math.floor(number / 100))
    for (const { length } of counts.values()) expect(Math.abs(length - 6_000)).toBeLessThan(500)
    // Every pair of draws that follow one another comes up, as often as it should.
    const pairs = new Set(draws.slice(1).map((number, index) => `${number % 17} ${(draws[index] ?? 0) % 17}`))
    expect([seed, pairs.size]).toEqual([seed, 17 * 17])
  }
})
