// The tests of the gateway's suite against the enclave that measure time; suite.slow.test.ts has the rest.

import { test } from 'bun:test'
import { expectPassesInEnclave, gatewayTestFiles } from '../rigs/enclave/suite.ts'

const suiteMs = 600_000

test(
  'goal: every test of the gateway that measures time passes in the enclave, too, or says why it needs the host',
  () => expectPassesInEnclave(gatewayTestFiles(['alone']), suiteMs),
  suiteMs + 60_000,
)
