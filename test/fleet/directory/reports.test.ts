// Hosts that report much leave the directory's counter to creates. Pure.

import { expect, test } from 'bun:test'
import { restAfterReport } from '../../../src/fleet/directory/reports.ts'

// Goal: the rest follows the report's length, within its bounds.
test('a report that waited is followed by a longer rest, a second at most', () => {
  expect([0, 2, 5, 20, 50, 9_000].map(restAfterReport)).toEqual([50, 50, 100, 400, 1_000, 1_000])
})

// Goal: creates get their turn soon. Each host that has something to report all the time holds the counter for 5 ms
// and waits for the others.
test('a hundred busy hosts make a change wait for 50 ms at most', () => {
  const [hosts, holdMs] = [100, 5]
  let waitMs = 1
  // The queue is as long as the number of hosts that report at a time.
  for (let step = 0; step < 1_000; step += 1) {
    const tookMs = waitMs + holdMs
    const reporting = (hosts * tookMs) / (tookMs + restAfterReport(tookMs))
    waitMs += 0.1 * (reporting * holdMs - waitMs)
  }
  expect(waitMs).toBeGreaterThan(5)
  expect(waitMs).toBeLessThan(50)
})
