// The gateway's suite against the enclave: a process fed by the host's side, over HTTPS. suite.alone.test.ts has the
// tests that measure time and need the processors alone.

import { expect, test } from 'bun:test'
import { expectPassesInEnclave, gatewayPhases, gatewayTestFiles } from '../rigs/enclave/suite.ts'

const suiteMs = 900_000

test(
  'goal: every test of the gateway passes in the enclave, too, or says why it needs the host',
  () => expectPassesInEnclave(gatewayTestFiles(['unit', 'slow']), suiteMs),
  suiteMs + 60_000,
)

// Goal: the two files share the suite between them, and each has a part of it.
test('no file is left out', () => {
  const parts = [gatewayTestFiles(['unit', 'slow']), gatewayTestFiles(['alone'])]
  expect(parts.flat().toSorted()).toEqual(gatewayTestFiles(gatewayPhases))
  for (const part of parts) expect(part.length).toBeGreaterThan(3)
})
