// The tests of the gateway's suite against the enclave that measure time, and much of the suite against an enclave with
// two relays; suite.slow.test.ts has the rest. Both run a sample unless the run is exhaustive.

import { test } from 'bun:test'
import { runsAll } from '../../scripts/rigs/all.ts'
import { expectPassesInEnclave, gatewayTestFiles } from '../rigs/enclave/suite.ts'

const suiteMs = 600_000

test(
  'goal: every test of the gateway that measures time passes in the enclave, too, or says why it needs the host',
  () => expectPassesInEnclave(gatewayTestFiles(['alone']), suiteMs),
  suiteMs + 60_000,
)

const relayed = [
  ...['gateway', 'budgets', 'receipts', 'routes', 'slots.slow'].map(name => `test/inference/gateway/${name}.test.ts`),
  ...['stream.slow', 'leaving.alone'].map(name => `test/inference/gateway/streams/${name}.test.ts`),
  'test/inference/encryption/tampering.test.ts',
  // One more endpoint, which relays do not look at.
  ...(runsAll ? ['test/inference/gateway/embeddings.test.ts'] : []),
]

test(
  'goal: refusals, limits, budgets, receipts, encryption and upstreams that misbehave are the same with relays',
  () => expectPassesInEnclave(relayed, suiteMs, { processes: 2 }),
  suiteMs + 60_000,
)
