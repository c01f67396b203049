// Choices among held VMs as tables.

import { expect, test } from 'bun:test'
import { furthest, surplus } from '../../../src/vm/held/held.plan.ts'

const held = [
  { id: 'old', rank: 0 },
  { id: 'boots', rank: 2 },
  { id: 'waits', rank: 4 },
  { id: 'new', rank: 0 },
] as const

test('the furthest along is taken first and dropped last', () => {
  // Goal: one order for both; among equals the oldest stays.
  const dropped = (wanted: number) => surplus(held, wanted).map(({ id }) => id)
  expect([4, 3, 2, 1, 0].map(dropped)).toEqual([
    [],
    ['waits'],
    ['waits', 'boots'],
    ['waits', 'boots', 'new'],
    ['waits', 'boots', 'new', 'old'],
  ])
  expect(dropped(9)).toEqual([])
})

test('the search ends at the first VM that is as far along as can be, the oldest among equals', () => {
  // Goal: no row is judged in vain while a transaction waits.
  let judged = 0
  function* counted() {
    for (const row of [held[2], held[1], ...held]) {
      judged += 1
      yield row
    }
  }
  expect([furthest(counted())?.id, judged]).toEqual(['old', 3])
  expect(furthest([held[1], { id: 'newer', rank: 2 }])?.id).toBe('boots')
  expect(furthest([])).toBeNull()
})
