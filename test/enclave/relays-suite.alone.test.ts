// Much of the gateway's suite against an enclave with two relays: clients must see no difference. Some tests measure
// time.

import { expect, test } from 'bun:test'
import { runAgainstEnclave } from '../rigs/enclave/suite.ts'

const suiteMs = 600_000

const files = [
  ...['gateway', 'budgets', 'receipts', 'routes', 'slots', 'embeddings'].map(
    name => `test/inference/gateway/${name}.test.ts`,
  ),
  'test/inference/gateway/streams/stream.alone.test.ts',
  'test/inference/encryption/tampering.test.ts',
]

test(
  'goal: refusals, limits, budgets, receipts, encryption and upstreams that misbehave are the same with relays',
  async () => {
    const run = await runAgainstEnclave(files, suiteMs, { processes: 2 })
    if (run.failed > 0) process.stderr.write(run.output)
    expect([run.failed, run.problems]).toEqual([0, []])
    expect(run.passed).toBeGreaterThan(100)
  },
  suiteMs + 60_000,
)
