// Goal: what `up` advises after a failure is what `strongroom help instances` has for the code.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { FAILURE_REMEDIES, failureWords } from '../../../src/client/instances/failure-remedies.ts'

const page = readFileSync(join(import.meta.dir, '../../../src/cli/help/instances.md'), 'utf8')
const record = {
  name: 'k3v9x2ma',
  status: 'failed',
  hostname: 'k3v9x2ma.acme.agents.example',
  public_key: 'x',
  inference_model: 'tiny',
  created_at: '2026-11-20T08:30:00.000Z',
}

test('goal: every row of the page is the remedy of its code, and no code lacks a row', () => {
  const rows = [...page.matchAll(/^\| `([a-z_]+)` +\| [^|]+\| ([^|]+?) +\|$/gm)].map(([, code = '', text = '']) => [
    code,
    text,
  ])
  expect([rows[0], rows.length > 10]).toEqual([['failure_code', 'what helps'], true])
  // On the page the explanation stands below its table.
  const remedies = Object.entries(FAILURE_REMEDIES).map(([code, text]) => [
    code,
    text.replace(/see `strongroom help \w+`$/, 'see below'),
  ])
  expect(rows.slice(1)).toEqual(remedies)
  expect(FAILURE_REMEDIES.ssh_unreachable).toEndWith('`strongroom help ssh_unreachable`')
})

test('goal: a known code has our words, an unknown one those of the service on one harmless line', () => {
  const own = 'The virtual machine could not be started.'
  const known = failureWords({ ...record, failure_code: 'boot_failed', failure_message: own })
  expect(known).toEqual({ reason: `boot_failed: ${own}`, remedy: 'create again' })
  const more = failureWords({ ...record, failure_code: 'boot_failed', failure_message: 'a\u001b[2J\nb' })
  expect(more.reason).toBe(`boot_failed: ${own} The service reports: a\\x1b[2J b`)
  const other = failureWords({ ...record, failure_code: 'later', failure_message: 'a\n\u001b[2Jb' })
  expect(other.reason).toBe('later: a \\x1b[2Jb')
  expect(failureWords({ ...record, failure_code: 'constructor', failure_message: null }).reason).toBe('constructor')
  expect(failureWords(record).reason).toBe('the service gives no reason')
})
