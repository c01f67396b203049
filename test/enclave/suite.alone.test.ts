// Of the gateway's suite against the enclave what measures time; the rest is suite.slow.test.ts.

import { test } from 'bun:test'
import { expectPassesInEnclave, gatewayTestFiles } from '../rigs/enclave/suite.ts'

const suiteMs = 600_000

test(
  'goal: every test of the gateway that measures time passes in the enclave, too, or says why it needs the host',
  () => expectPassesInEnclave(gatewayTestFiles(['alone']), suiteMs),
  suiteMs + 60_000,
)
