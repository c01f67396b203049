// `inference.processes` and the memory of the gateway's VM.

import { expect, test } from 'bun:test'
import { parseConfig } from '../../../src/config/parse.ts'
import { gatewayProcessesMax } from '../../../src/contract/vm/workload.ts'

// Goal: a gateway VM is not asked for more processes than its memory has room for, and no gateway for more than
// workload.json can name.
test.each([
  ['processes = 0\nmemory_mib = 1024', true],
  ['processes = 1\nmemory_mib = 1024', true],
  ['processes = 4\nmemory_mib = 1024', true],
  ['processes = 5\nmemory_mib = 1024', false],
  ['processes = 32\nmemory_mib = 8192', true],
  ['processes = 32', false],
  [`processes = ${gatewayProcessesMax}\nplacement = "host"`, true],
  [`processes = ${gatewayProcessesMax + 1}\nplacement = "host"`, false],
])('%p: %p', (toml, isAllowed) => {
  const verdict = parseConfig(`[inference]\n${toml}\n`, 'f')
  expect(verdict.ok).toBe(isAllowed)
  if (!verdict.ok) expect(JSON.stringify(verdict.problems)).toContain('inference.processes')
})
