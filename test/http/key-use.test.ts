// When keys were last used, over a write that counts.

import { expect, test } from 'bun:test'
import { createKeyUse } from '../../src/http/key-use.ts'

function bench() {
  const written: number[] = []
  const told: unknown[] = []
  const state = { isBroken: false }
  const log = {
    debug: () => {},
    info: () => {},
    warn: (text: string) => told.push(text),
    error: () => {},
    unit: () => log,
  }
  const note = createKeyUse({
    log,
    what: 'a key',
    intervalMs: 60_000,
    write: ({ nowMs }) => {
      written.push(nowMs)
      if (state.isBroken) throw new Error('database is locked')
    },
  })
  return { note, written, told, state }
}

// Goal: the use of a key is noted seldom, and never costs a request its answer.
test('once in each interval, and a time from the future counts for nothing', () => {
  const { note, written } = bench()
  const key = (lastUsedAtMs: number | null) => ({ prefix: 'abcd2345', lastUsedAtMs })
  note(key(null), 5)
  note(key(5), 60_004)
  note(key(5), 60_005)
  note(key(60_005), 60_005 + 59_999)
  note(key(60_005), 60_004)
  expect(written).toEqual([5, 60_005, 60_004])
})

// Goal: what cannot be written is not tried for each request.
test('while it cannot be written, every ten seconds, and as before afterwards', () => {
  const { note, written, told, state } = bench()
  const key = { prefix: 'abcd2345', lastUsedAtMs: null }
  state.isBroken = true
  for (const nowMs of [100_000, 100_001, 109_999, 110_000, 110_001]) note(key, nowMs)
  expect([written, told.length]).toEqual([[100_000, 110_000], 2])
  // The clock is set back by 40 days.
  note(key, 110_000 - 40 * 86_400_000)
  expect(written).toHaveLength(3)
  state.isBroken = false
  note(key, 200_000)
  note(key, 200_001)
  expect([written.slice(3), told.length]).toEqual([[200_000, 200_001], 3])
})
