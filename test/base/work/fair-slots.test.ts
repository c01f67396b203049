// Goal: places are given back once, no owner holds more than its share, and nothing is remembered of who holds none.

import { expect, test } from 'bun:test'
import { FairSlots, shareOf } from '../../../src/base/work/fair-slots.ts'

test('goal: shares hold for each of the owners that a place counts for, and whatever is given back is free again', () => {
  const places = new FairSlots(8)
  const take = (...names: string[]) => places.take(names.map(name => ({ name, parts: name === 'all' ? 2 : 4 })))
  const held = [take('a'), take('a')]
  expect(take('a')).toBe('own')
  const strangers = [take('all', 'x'), take('all', 'x'), take('all', 'y'), take('all', 'z')]
  expect([take('all', 'x'), take('all', 'w')]).toEqual(['own', 'own'])
  expect([typeof take('b'), typeof take('c'), take('d')]).toEqual(['function', 'function', 'all'])
  for (const leave of [held[0], held[0], strangers[0]]) if (typeof leave === 'function') leave()
  expect([places.count, typeof take('a'), take('a'), typeof take('all', 'x')]).toEqual([
    6,
    'function',
    'own',
    'function',
  ])
  const single = new FairSlots(1)
  const leave = single.take([{ name: 'a', parts: 4 }])
  expect([single.take([{ name: 'b', parts: 4 }]), single.owners]).toEqual(['all', 1])
  if (typeof leave === 'function') leave()
  expect([single.count, single.owners, shareOf(3, 4), shareOf(1024, 8)]).toEqual([0, 0, 1, 128])
})

test('goal: several places are taken together or not at all', () => {
  const places = new FairSlots(8)
  const take = (name: string, count: number) => places.take([{ name, parts: 2 }], count)
  expect([take('a', 5), places.count]).toEqual(['own', 0])
  const four = take('a', 4)
  expect([take('a', 1), typeof take('b', 3), take('c', 2), typeof take('c', 1)]).toEqual([
    'own',
    'function',
    'all',
    'function',
  ])
  if (typeof four === 'function') four()
  expect([places.count, typeof take('a', 4)]).toEqual([4, 'function'])
})
