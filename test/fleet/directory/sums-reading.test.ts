// Goal: a host that cannot read what others spend says so, whatever the reason. Real SQLite; the database refuses.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { SumsReading } from '../../../src/fleet/directory/sums-reading.ts'
import { Outbox } from '../../../src/fleet/replica/outbox.ts'
import { Replica } from '../../../src/fleet/replica/replica.ts'
import { SumsMark } from '../../../src/fleet/replica/sums-mark.ts'
import { openStore } from '../../../src/store/db.ts'

// Goal: a problem from a minute of failures on, logged once; a reading ends it, and a later failure begins again.
test('readings that fail', async () => {
  const { directory, hostId } = openStore(':memory:')
  const replica = new Replica({
    directory,
    hostId,
    adopt: () => {
      throw new Error('there are no instances here')
    },
  })
  replica.begin('f')
  const clock = createManualClock()
  const warnings: unknown[] = []
  let error: Error | null = new Error('SQLITE_MISMATCH')
  const position = { source: 's', snapshot: '9:9:', batch: 0, usage_months: null, usage_days: null }
  const reading = new SumsReading({
    postgres: {
      query: async text => {
        if (error !== null) throw error
        return (text.includes('pg_current_snapshot') ? [position] : []) as never
      },
    },
    replica,
    outbox: new Outbox(directory, replica),
    copy: { sums: new SumsMark(directory.db), catchUp: async () => {} },
    hostId,
    clock,
    log: { warn: (message, fields) => warnings.push([message, fields]) },
  })
  const beganMs = clock.nowMs()
  for (let seconds = 0; seconds < 59; seconds += 1) {
    await expect(reading.read()).rejects.toThrow('SQLITE_MISMATCH')
    clock.advance(1_000)
  }
  expect([reading.unread(), warnings]).toEqual([null, []])
  for (let seconds = 0; seconds < 30; seconds += 1) {
    clock.advance(1_000)
    await expect(reading.read()).rejects.toThrow()
  }
  expect(reading.unread()).toEqual({ problem: expect.stringContaining('SQLITE_MISMATCH'), sinceMs: beganMs })
  expect(warnings).toHaveLength(1)
  error = null
  await reading.read()
  expect(reading.unread()).toBeNull()
  error = new Error('another')
  await expect(reading.read()).rejects.toThrow()
  expect(reading.unread()).toBeNull()
})
