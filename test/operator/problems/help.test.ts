// Goal: each problem has its section in `strongroom help 3am`, under its name.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { PROBLEM_NAMES } from '../../../src/contract/admin/problems.ts'

test('goal: each name stands in one title of the runbook', () => {
  const text = readFileSync(join(import.meta.dir, '../../../src/cli/help/3am.md'), 'utf8')
  const titles = text.split('\n').filter(line => /^##+ /.test(line))
  const named = PROBLEM_NAMES.map(name => [name, titles.filter(title => title.includes(`\`${name}\``)).length])
  expect(named.filter(([, count]) => count !== 1)).toEqual([])
  expect(named.length).toBeGreaterThan(20)
})
