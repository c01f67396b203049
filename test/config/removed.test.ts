// Goal: a file of the release before is read, with a warning for each field that is gone; none is forgiven for ever.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { version } from '../../package.json'
import { parseConfig } from '../../src/config/parse.ts'
import { REMOVED_FIELDS, takeRemoved } from '../../src/config/removed.ts'
import { runHere } from '../rigs/program.ts'

const old = `[vm]
user = "strongroom-vm"
vcpus = 3

[inference]
nonce_retention_hours = 24
`

test('goal: a field that is gone is a warning with its line and what took its place; the rest is in force', () => {
  const verdict = parseConfig(old, '/f.toml')
  if (!verdict.ok) throw new Error(verdict.problems.map(({ message }) => message).join('\n'))
  expect(verdict.config.vm.vcpus).toBe(3)
  expect(verdict.warnings.map(({ line, field }) => [line, field])).toEqual([
    [2, 'vm.user'],
    [6, 'inference.nonce_retention_hours'],
  ])
  expect(verdict.warnings[1]?.message).toContain('inference.nonce_retention_minutes')
})

test('goal: a field that never was is still refused, also where a removed one is forgiven elsewhere', () => {
  for (const text of ['[vm]\nusers = "x"\n', 'user = "x"\n', '[network]\nuser = "x"\n', `${old}unknown = 1\n`])
    expect([text, parseConfig(text, '/f.toml').ok]).toEqual([text, false])
})

test('goal: odd tables are left to the schema', () => {
  for (const table of [{}, { vm: 1 }, { vm: null }, { vm: [{ user: 1 }] }, { vm: { User: 1 } }])
    expect(takeRemoved(structuredClone(table))).toEqual([])
})

test('goal: config check prints the warnings and passes, --strict fails, serve is not stopped by them', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'strongroom-removed-'))
  try {
    const path = join(dir, 'strongroom.toml')
    writeFileSync(path, old)
    const check = await runHere(['config', 'check', '--config', path])
    expect([check.code, check.stderr]).toEqual([
      0,
      expect.stringContaining(`${path}:2: vm.user: has no effect any more`),
    ])
    const json = JSON.parse((await runHere(['config', 'check', '--config', path, '--json'])).stdout)
    expect(json.warnings[0]).toMatchObject({ field: 'vm.user', line: 2 })
    expect((await runHere(['config', 'check', '--strict', '--config', path])).code).toBe(2)
  } finally {
    rmSync(dir, { recursive: true })
  }
})

test('goal: a row stands for one release: a later one refuses the field', () => {
  for (const { field, since } of REMOVED_FIELDS) expect([field, since]).toEqual([field, version])
})
