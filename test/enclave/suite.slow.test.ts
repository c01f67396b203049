// The gateway's suite against the enclave: a process fed by the host's side, over HTTPS. suite.alone.test.ts has the
// tests that measure time and need the processors alone, and much of the suite with relays.
//
// The gateway in the enclave has the same modules as in the host's process, where all of these tests run in the same
// phase. Three things differ. Settings come by workload.json; keys, rules and budgets come by the control snapshot; and
// usage, log and metrics leave by the channel. Besides, it is compiled and serves HTTPS. A setting that does not
// arrive, or a record that does not leave, fails each test of a file. So unless the run is exhaustive one or two tests
// of each file run here, and none of clis.slow.test.ts, which starts agents: codex-compaction has a real one.

import { expect, test } from 'bun:test'
import { runsAll } from '../../scripts/rigs/all.ts'
import { expectPassesInEnclave, gatewayPhases, gatewayTestFiles } from '../rigs/enclave/suite.ts'

const suiteMs = 900_000
const perFileMax = 2
const startsAgents = 'test/inference/agents/clis.slow.test.ts'
const files = gatewayTestFiles(['unit', 'slow']).filter(file => runsAll || file !== startsAgents)

test(
  'goal: every test of the gateway passes in the enclave, too, or says why it needs the host',
  () => expectPassesInEnclave(files, suiteMs, { perFileMax }),
  suiteMs + 60_000,
)

// Goal: the two files share the suite between them, and each has a part of it.
test('no file is left out', () => {
  const parts = [gatewayTestFiles(['unit', 'slow']), gatewayTestFiles(['alone'])]
  expect(parts.flat().toSorted()).toEqual(gatewayTestFiles(gatewayPhases))
  for (const part of parts) expect(part.length).toBeGreaterThan(2)
})
