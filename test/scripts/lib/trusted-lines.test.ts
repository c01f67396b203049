// Goal: what a relying party has to trust does not grow unnoticed.

import { expect, test } from 'bun:test'
import { resolve } from 'node:path'
import { codeLines, TRUSTED_PROGRAMS, trustedLines } from '../../../scripts/lib/trusted-lines.ts'

const repo = resolve(import.meta.dir, '../../..')

test.each(Object.entries(TRUSTED_PROGRAMS))('%s is within its budget of lines', async (_, program) => {
  // Goal: a change that adds much to what a relying party trusts is noticed.
  const { own, npm } = await trustedLines(repo, program)
  expect(own).toBeLessThanOrEqual(program.budget.own)
  expect(npm).toBeLessThanOrEqual(program.budget.npm)
  expect(program.aim.own).toBeLessThanOrEqual(program.budget.own)
  expect(program.aim.npm).toBeLessThanOrEqual(program.budget.npm)
  // A budget far above the program would let it grow: lower it with each gain.
  expect(own).toBeGreaterThan(program.budget.own * 0.95)
  expect(npm).toBeGreaterThan(program.budget.npm * 0.95)
})

test('blank lines and comments do not count', () => {
  // Goal: the figure is about code, whatever its comments.
  const text = [
    '#!/usr/bin/env bun',
    '// A module.',
    '',
    '/* two',
    '   lines */',
    'const a = 1 // one',
    '  /** A. */',
    '  ',
  ]
  expect(codeLines(text.join('\n'))).toBe(2)
})
