// Goal: a gateway VM is not asked for more processes than its memory has room for.

import { expect, test } from 'bun:test'
import { parseConfig } from '../../src/config/parse.ts'

// Goal: what has no room is refused, with what to do.
test.each([
  ['processes = 0\nmemory_mib = 1024', true],
  ['processes = 1\nmemory_mib = 1024', true],
  ['processes = 4\nmemory_mib = 1024', true],
  ['processes = 5\nmemory_mib = 1024', false],
  ['processes = 32\nmemory_mib = 8192', true],
  ['processes = 32', false],
  ['processes = 32\nplacement = "host"', true],
])('goal: %p: %p', (toml, isAllowed) => {
  const verdict = parseConfig(`[inference]\n${toml}\n`, 'f')
  expect(verdict.ok).toBe(isAllowed)
  if (!verdict.ok) expect(JSON.stringify(verdict.problems)).toContain('inference.processes')
})
