// Goal: an encrypted body is taken once. The memory for that is bounded. A bound body that the memory has lost is
// refused for its epoch, and no key pushes out marks of another's unbound bodies.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { ReplayMemory } from '../../../src/inference/encryption/replays.ts'

const hourMs = 3_600_000

function rig() {
  const clock = createManualClock(0)
  const memory = new ReplayMemory({ clock, random: systemRandom })
  const check = (mark: string, epoch: string | null = memory.epoch, keyDigest = 'k1') =>
    memory.check({ keyDigest, request: 'r1', epoch, mark }).outcome
  /** As many bodies as change the epoch. */
  const fill = (prefix: string, count = 65_536, epoch = memory.epoch) => {
    for (let i = 0; i < count; i += 1) check(`${prefix}${i}`, epoch)
  }
  return { clock, memory, check, fill }
}

test('goal: a bound body is new once, in its own epoch alone, whatever the clock says', () => {
  const { clock, memory, check } = rig()
  expect(memory.epoch).toMatch(/^[0-9a-f]{32}$/)
  expect([check('a'), check('a'), check('b'), check('b', 'ab'.repeat(16))]).toEqual(['new', 'seen', 'new', 'stale'])
  clock.advance(1_000 * hourMs)
  expect([check('a'), check('b'), check('c')]).toEqual(['seen', 'seen', 'new'])
})

test('goal: a body is never new twice: its epoch lasts as long as its mark', () => {
  const { memory, check, fill } = rig()
  const first = memory.epoch
  expect(check('kept', first)).toBe('new')
  fill('a', 65_534)
  expect(memory.epoch).toBe(first)
  expect(check('last', first)).toBe('new')
  const second = memory.epoch
  expect(second).not.toBe(first)
  // One epoch more, so that what is on its way arrives.
  expect([check('kept', first), check('late', first), check('late', first)]).toEqual(['seen', 'new', 'seen'])
  fill('b', 65_535)
  expect(memory.epoch).not.toBe(second)
  expect([check('kept', first), check('late', first), check('new', first)]).toEqual(['stale', 'stale', 'stale'])
  expect([check('b0', second), check('b65534', second)]).toEqual(['seen', 'seen'])
})

test('goal: bodies of the epoch before count as well, so that the memory is bounded', () => {
  const { memory, check, fill } = rig()
  const first = memory.epoch
  fill('a')
  const second = memory.epoch
  fill('b', 65_536, first)
  expect(memory.epoch).not.toBe(second)
  expect([check('a0', first), check('b0', first), check('x', second)]).toEqual(['stale', 'stale', 'new'])
})

test('goal: a verdict names the epoch of the next body', () => {
  const { memory, fill } = rig()
  const first = memory.epoch
  fill('a', 65_535)
  const body = { keyDigest: 'k1', request: 'r1', epoch: first, mark: 'last' }
  expect(memory.check(body)).toEqual({ outcome: 'new', epoch: memory.epoch })
  expect(memory.epoch).not.toBe(first)
})

test('goal: an unbound body is remembered for an hour, whichever key sends it again', () => {
  const { clock, check } = rig()
  expect([check('a', null), check('a', null), check('a', null, 'k2')]).toEqual(['new', 'seen', 'seen'])
  clock.advance(hourMs - 1)
  expect(check('a', null)).toBe('seen')
  clock.advance(1)
  expect(check('a', null)).toBe('new')
})

test('goal: a key with many unbound bodies loses its own oldest, and bound ones push out none', () => {
  const { check, fill } = rig()
  for (let i = 0; i < 100; i += 1) check(`small${i}`, null, 'k2')
  for (let i = 0; i < 20_000; i += 1) check(`large${i}`, null, 'k1')
  fill('bound')
  fill('bound')
  for (let i = 0; i < 100; i += 1) expect(check(`small${i}`, null, 'k1')).toBe('seen')
  // 16,384 in all.
  expect([check('large3716', null), check('large3715', null)]).toEqual(['seen', 'new'])
})

test('goal: a key evicts no mark of another key, and a copy is found under any', () => {
  const { check } = rig()
  expect(check('victim', null, 'aa')).toBe('new')
  for (let i = 0; i < 20_000; i += 1) check(`host${i}`, null, 'bb')
  expect([check('victim', null, 'bb'), check('victim', null, 'cc')]).toEqual(['seen', 'seen'])
  expect([check('host19999', null, 'aa'), check('host0', null, 'aa')]).toEqual(['seen', 'new'])
})
