// Goal: doctor has a line for the log, with its size, its newest entry and how far it is shown.

import { expect, test } from 'bun:test'
import { logCheck } from '../../../src/cli/doctor/log.plan.ts'

const log = {
  ...{ size: 9, shown: 7, last_entry_at: '2026-11-26T10:00:00.000Z', waiting_since: null, witnesses: 2 },
  problems: [],
}

test('goal: a log that the daemon describes passes; without the daemon nothing is known', () => {
  expect(logCheck(log)).toEqual({
    name: 'transparency log',
    result: 'PASS',
    detail: '9 entries, the last 2026-11-26T10:00:00.000Z, 2 not shown; 2 witnesses',
    remedy: null,
  })
  expect(logCheck({ ...log, witnesses: 0 }).detail).toContain("this host's word alone")
  expect(logCheck(null).result).toBe('SKIP')
})
