// Much of the gateway's suite against an enclave with two relays; what measures time is in suite.alone.test.ts. A
// sample unless the run is exhaustive.

import { test } from 'bun:test'
import { runsAll } from '../../scripts/rigs/all.ts'
import { expectPassesInEnclave } from '../rigs/enclave/suite.ts'

const suiteMs = 600_000

const relayed = [
  ...['gateway', 'budgets', 'receipts.slow', 'routes', 'slots.slow'].map(
    name => `test/inference/gateway/${name}.test.ts`,
  ),
  'test/inference/gateway/streams/stream.slow.test.ts',
  'test/inference/encryption/tampering.slow.test.ts',
  // One more endpoint, which relays do not look at.
  ...(runsAll ? ['test/inference/gateway/embeddings.slow.test.ts'] : []),
]

test(
  'goal: refusals, limits, budgets, receipts, encryption and upstreams that misbehave are the same with relays',
  () => expectPassesInEnclave(relayed, suiteMs, { processes: 2 }),
  suiteMs + 60_000,
)
