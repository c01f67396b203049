// Streams that their clients leave, thousands of them: nothing is left behind, and each is in the ledger once.

import { expect, test } from 'bun:test'
import { abandonStreams } from '../../../../scripts/rigs/gateway/abandoned-streams.ts'

const MIB = 1024 * 1024
const streams = 5_000

// Goal: whenever clients leave, the upstream is free, nothing stays reserved, memory and descriptors do not grow, and
// no row is missing or double. `bun run bench abandoned` does the same with 100,000.
test(`${streams} streams that are left leave nothing behind`, async () => {
  const { early, late, ledger, counted } = await abandonStreams({ streams, early: 2_000, note: () => {} })
  expect(late).toMatchObject({ running: 0, reserved: 0, upstreamRunning: 0, waiting: 0, lost: 0 })
  expect(ledger).toMatchObject({ missing: [], unexpected: [], wrong: [] })
  expect(late.heapBytes - early.heapBytes).toBeLessThan(4 * MIB)
  expect(late.descriptors - early.descriptors).toBeLessThan(16)
  // Null on a machine where the last of them took a minute.
  if (counted !== null) expect(counted.byLimits).toBe(counted.byLedger)
}, 120_000)
