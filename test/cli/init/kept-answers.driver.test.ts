// Goal: answers survive a run that did not reach its end, for root alone; a damaged file counts as none.

import { expect, test } from 'bun:test'
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { keptAnswersName, openKeptAnswers } from '../../../src/cli/init/kept-answers.driver.ts'

test('goal: kept at once, found by the next run, and gone when they are cleared', () => {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-kept-'))
  const path = join(directory, keptAnswersName)
  const first = openKeptAnswers(directory)
  expect(first.get('domain')).toBeUndefined()
  first.set('domain', 'agents.test')
  first.set('network.public_v4', '')
  expect(statSync(path).mode & 0o777).toBe(0o600)
  const second = openKeptAnswers(directory)
  expect([second.get('domain'), second.get('network.public_v4')]).toEqual(['agents.test', ''])
  second.clear()
  expect(existsSync(path)).toBe(false)
  for (const text of ['{', '[]', 'null', '{"domain": 1}', `{"domain":"${'x'.repeat(70_000)}"}`]) {
    writeFileSync(path, text)
    expect([text.slice(0, 9), openKeptAnswers(directory).get('domain')]).toEqual([text.slice(0, 9), undefined])
  }
  rmSync(directory, { recursive: true })
})

test('goal: without a state directory they live as long as the run', () => {
  const kept = openKeptAnswers('/nonexistent/state')
  kept.set('domain', 'agents.test')
  expect(kept.get('domain')).toBe('agents.test')
  kept.clear()
})
