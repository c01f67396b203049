// Calls that were taken: each once, within the time that is accepted.

import { expect, test } from 'bun:test'
import { apartMsMax, SeenCalls } from '../../../src/fleet/peers/seen-calls.ts'

const call = (nonce: string, atMs: number, from = 'a') => ({
  ...({ to: 'b', service: 'alive', client: '', principal: null } as const),
  ...{ from, nonce, atMs },
})

test('a call is refused again for as long as its time is accepted', () => {
  // Goal: no moment comes at which a call that was taken would be taken again.
  const seen = new SeenCalls(0)
  const atMs = 100_000
  for (const takenAtMs of [atMs - apartMsMax, atMs, atMs + apartMsMax]) {
    const nonce = `n${takenAtMs}`
    expect(seen.take(call(nonce, atMs), takenAtMs)).toBeNull()
    for (let nowMs = takenAtMs; nowMs <= atMs + 3 * apartMsMax; nowMs += 1_000) {
      expect(seen.take(call(nonce, atMs), nowMs)).not.toBeNull()
    }
  }
})

// Goal: what the process before took is not taken again, and clocks that are far apart are.
test('times', () => {
  expect(apartMsMax).toBe(30_000)
  const seen = new SeenCalls(50_000)
  expect(seen.take(call('1', 49_999), 50_001)).toBe('clock')
  expect(seen.take(call('2', 50_000), 50_001)).toBeNull()
  expect(seen.take(call('3', 100_000), 100_000 + apartMsMax + 1)).toBe('clock')
  expect(seen.take(call('4', 100_001 + apartMsMax), 100_000)).toBe('clock')
})

// Goal: a host that calls without end takes bounded memory, keeps no other one from calling, and is heard again later.
test('a host that calls too often', () => {
  const seen = new SeenCalls(0)
  let count = 0
  while (seen.take(call(String(count), 1_000), 1_000) === null) count += 1
  expect(count).toBe(65_536)
  expect(seen.take(call('more', 1_000), 1_000)).toBe('busy')
  expect(seen.take(call('0', 1_000), 1_000)).toBe('replay')
  expect(seen.take(call('other', 1_000, 'c'), 1_000)).toBeNull()
  const laterMs = 1_001 + 2 * apartMsMax
  expect(seen.take(call('later', laterMs), laterMs)).toBeNull()
})
