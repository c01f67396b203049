// Goal: doctor has a line for the log, and one for each thing that is wrong with it, with what to do.

import { expect, test } from 'bun:test'
import { logChecks } from '../../../src/cli/doctor/log.plan.ts'

const log = {
  ...{ size: 9, shown: 7, last_entry_at: '2026-11-26T10:00:00.000Z', waiting_since: null, witnesses: 2 },
  problems: [],
}
const remedy = 'mend it'

test('goal: a good log passes with its size, its newest entry and how far it is shown', () => {
  expect(logChecks(log)).toEqual([
    {
      name: 'transparency log',
      result: 'PASS',
      detail: '9 entries, the last 2026-11-26T10:00:00.000Z, 2 not shown; 2 witnesses',
      remedy: null,
    },
  ])
  expect(logChecks({ ...log, witnesses: 0 })[0]?.detail).toContain("this host's word alone")
  expect(logChecks(null).map(({ result }) => result)).toEqual(['SKIP'])
})

test('goal: what clients refuse fails, a single witness is a warning beside the good line', () => {
  const problems = [
    { witness: null, severe: true, detail: 'entries wait', remedy },
    { witness: 'w.example/w', severe: false, detail: 'it fails', remedy },
  ]
  expect(logChecks({ ...log, problems })).toMatchObject([
    { name: 'transparency log', result: 'FAIL', detail: expect.stringContaining('entries wait'), remedy },
    { name: 'log witness', result: 'WARN', detail: 'w.example/w: it fails', remedy },
  ])
  expect(logChecks({ ...log, problems: problems.slice(1) }).map(({ result }) => result)).toEqual(['PASS', 'WARN'])
})
