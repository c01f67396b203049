// Goal: each problem has its section in `strongroom help 3am`, under its name.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { findInHelp } from '../../../src/cli/help/find.ts'
import { helpCommandFor, PROBLEM_NAMES } from '../../../src/contract/admin/problems.ts'
import { paintFor } from '../../../src/terminal/render.ts'

test('goal: each name stands in one title of the runbook', () => {
  const text = readFileSync(join(import.meta.dir, '../../../src/cli/help/3am.md'), 'utf8')
  const titles = text.split('\n').filter(line => /^##+ /.test(line))
  const named = PROBLEM_NAMES.map(name => [name, titles.filter(title => title.includes(`\`${name}\``)).length])
  expect(named.filter(([, count]) => count !== 1)).toEqual([])
  expect(named.length).toBeGreaterThan(20)
})

test('goal: the command that status and e-mails name prints the section of the problem, and nothing before it', () => {
  const shown = (command: string) =>
    findInHelp(command.replace('strongroom help ', ''), { columns: 80, paint: paintFor(false) })
  for (const name of PROBLEM_NAMES) {
    const [where, , title] = shown(helpCommandFor(name))?.split('\n') ?? []
    expect([name, where]).toEqual([name, 'For operators: strongroom help 3am'])
    expect(title?.toLowerCase()).toContain(name.toLowerCase())
  }
  // These names are topics or commands too.
  expect(shown(helpCommandFor('backup'))).toContain('The last backup failed')
  expect(shown(helpCommandFor('disk'))).toContain('du -xh')
  expect(shown('problem nonsense')).toBeNull()
})
