// Goal: a customer who types the operator's command learns the command for customers; the operator, how to start it.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runHere } from '../../rigs/program.ts'

const stateDir = mkdtempSync(join(tmpdir(), 'srt-customer-'))
afterAll(() => rmSync(stateDir, { recursive: true }))

// Goal: each of them, with and without a state directory.
test.each([
  [['list'], '`strongroom ls`'],
  [['show', 'k3v9x2ma'], '`strongroom ls`'],
  [['delete', 'k3v9x2ma'], '`strongroom rm NAME`'],
])('instance %p', async (words, command) => {
  const customer = await runHere(['instance', ...words, '--state-dir', join(stateDir, 'none')])
  expect([customer.code, customer.stderr]).toEqual([3, expect.stringContaining(command)])
  expect(customer.stderr).not.toContain('strongroom serve')
  const operator = await runHere(['instance', ...words, '--state-dir', stateDir])
  expect([operator.code, operator.stderr]).toEqual([3, expect.stringContaining('start `strongroom serve`')])
})
