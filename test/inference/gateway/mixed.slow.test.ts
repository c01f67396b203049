// Mixed load for a while, and then the ledger row by row.

import { expect, test } from 'bun:test'
import { runMixedLoad } from '../../../scripts/rigs/mixed/load.ts'

const loadMs = 20_000

// Goal: under mixed load each request has exactly the row that client and upstream saw, and no budget is exceeded. `bun
// run bench mixed` does the same for five minutes.
test('the ledger of mixed load is right row by row', async () => {
  const { byOutcome, bySource, statuses, late, verdict } = await runMixedLoad({ ms: loadMs, note: () => {} })
  expect(verdict.problems).toEqual([])
  expect(late).toMatchObject({ running: 0, reserved: 0, upstreamRunning: 0, waiting: 0, lost: 0 })
  // Every kind of request occurred.
  expect(Object.keys(byOutcome).sort()).toEqual(['aborted', 'completed', 'failed'])
  expect(Object.keys(bySource).sort()).toEqual(['estimated', 'implausible', 'reported'])
  expect(Object.keys(statuses).sort()).toEqual(['200', '400', '401', '402', '404', '429', '502', 'left'])
  expect(Math.min(verdict.byId, verdict.byCounts, verdict.withoutRow)).toBeGreaterThan(10)
}, 90_000)
