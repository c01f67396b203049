// Goal: what a relying party has to trust does not grow unnoticed.

import { expect, test } from 'bun:test'
import { resolve } from 'node:path'
import { VERIFIER_MODULES } from '../../../scripts/build-verifier.ts'
import { chainsFrom, codeLines, TRUSTED_PROGRAMS, trustedLines } from '../../../scripts/lib/trusted-lines.ts'

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
  expect(npm).toBeGreaterThanOrEqual(program.budget.npm * 0.95)
})

test('every module for pages has a budget', () => {
  // Goal: what leaves one of them for another one is not lost from sight.
  const entries = Object.values(TRUSTED_PROGRAMS).map(({ entry }) => resolve(repo, entry))
  for (const entry of Object.values(VERIFIER_MODULES)) expect(entries).toContain(entry)
})

test('each module comes with the chain of imports that brings it in', async () => {
  // Goal: a reader of `--files` sees why a module is in the program, and where to cut.
  const { own, files } = await trustedLines(repo, TRUSTED_PROGRAMS['strongroom-tpm.js'])
  expect(files.reduce((sum, { lines }) => sum + lines, 0)).toBe(own)
  const key = files.find(({ path }) => path === 'src/attest/tpm/key.ts')
  expect(key?.via).toEqual(['src/verifier/tpm.ts', 'src/attest/virtual-tpms.ts'])
  expect(key?.bundledBytes).toBeGreaterThan(500)
})

test("the code of a program's threads counts", async () => {
  // Goal: a module is not lost from sight because another thread of the same executable runs it.
  const paths = new Set(
    (await trustedLines(repo, TRUSTED_PROGRAMS['strongroom-enclave'])).files.map(({ path }) => path),
  )
  for (const thread of TRUSTED_PROGRAMS['strongroom-enclave'].threads) expect(paths).toContain(thread)
})

test('a chain is a shortest one, also in a cycle', () => {
  // Goal: the chain that a reader follows has no needless step, and none is followed forever.
  const graph: Record<string, readonly string[]> = { a: ['b', 'c'], b: ['d'], c: ['a'], d: ['e'], t: ['d'] }
  const chains = chainsFrom(['a', 't'], path => graph[path] ?? [])
  expect(Object.fromEntries(chains)).toEqual({ a: [], t: [], b: ['a'], c: ['a'], d: ['t'], e: ['t', 'd'] })
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
