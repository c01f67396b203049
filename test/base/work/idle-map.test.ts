import { expect, test } from 'bun:test'
import { IdleMap } from '../../../src/base/work/idle-map.ts'

// Goal: an entry is dropped once it was unused for the whole time, not before, and not while it is held.
test('unused entries', () => {
  const map = new IdleMap<{ usedAtMs: number }>(100, 0)
  map.set('old', { usedAtMs: 0 }).set('held', { usedAtMs: 0 }).set('new', { usedAtMs: 1 })
  const isHeld = (entry: { usedAtMs: number }) => entry === map.get('held')
  map.sweep(99, isHeld)
  expect([...map.keys()]).toEqual(['old', 'held', 'new'])
  map.sweep(100, isHeld)
  expect([...map.keys()]).toEqual(['held', 'new'])
})

// Goal: a sweep reads all entries, so a flood of requests causes one sweep in the time.
test('one sweep in the time', () => {
  const map = new IdleMap<{ usedAtMs: number }>(100, 0)
  map.sweep(100)
  map.set('late', { usedAtMs: 50 })
  map.sweep(199)
  expect(map.size).toBe(1)
  map.sweep(200)
  expect(map.size).toBe(0)
})
