// The tests of the gateway's suite that measure time, against the enclave; suite.slow.test.ts and relayed.slow.test.ts
// have the rest. A sample unless the run is exhaustive.

import { test } from 'bun:test'
import { expectPassesInEnclave, gatewayTestFiles } from '../rigs/enclave/suite.ts'

const suiteMs = 600_000

test(
  'goal: every test of the gateway that measures time passes in the enclave, too, or says why it needs the host',
  () => expectPassesInEnclave(gatewayTestFiles(['alone']), suiteMs),
  suiteMs + 60_000,
)

test(
  'goal: a client that leaves frees its slot as soon with relays',
  () => expectPassesInEnclave(['test/inference/gateway/streams/leaving.alone.test.ts'], suiteMs, { processes: 2 }),
  suiteMs + 60_000,
)
