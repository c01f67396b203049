// Goal: the configuration is read from the right place, and what is wrong in it becomes one fault.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { resolveStateDir } from '../../src/cli/state-dir.ts'
import { loadConfig } from '../../src/config/load.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-config-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

test('goal: an absent default file means defaults, an absent named file is an error', () => {
  const file = join(dir, 'c.toml')
  expect(() => loadConfig({ path: file, env: {} })).toThrow(/read configuration: ENOENT/)
  expect(() => loadConfig({ path: undefined, env: { STRONGROOM_CONFIG: file } })).toThrow(/ENOENT/)
  writeFileSync(file, 'domain = "named.example"')
  const other = join(dir, 'd.toml')
  writeFileSync(other, 'domain = "other.example"')
  const env = { STRONGROOM_CONFIG: other }
  expect(loadConfig({ path: file, env })).toMatchObject({ file, config: { domain: 'named.example' } })
  expect(loadConfig({ path: undefined, env })).toMatchObject({ file: other, config: { domain: 'other.example' } })
})

test('goal: a single mistake names its field, several do not single one out', () => {
  const file = join(dir, 'c.toml')
  writeFileSync(file, 'platform = 1')
  expect(() => loadConfig({ path: file, env: {} })).toThrow(
    expect.objectContaining({ code: 'config.invalid', param: 'platform' }),
  )
  writeFileSync(file, 'platform = 1\ndomain = 2')
  expect(() => loadConfig({ path: file, env: {} })).toThrow(expect.objectContaining({ param: undefined }))
})

test('goal: the state directory is taken from the option, the environment, the default, in this order', () => {
  const env = { STRONGROOM_STATE_DIR: '/from/env' }
  expect(resolveStateDir({ path: '/from/option', env })).toBe('/from/option')
  expect(resolveStateDir({ path: undefined, env })).toBe('/from/env')
  expect(resolveStateDir({ path: undefined, env: { STRONGROOM_STATE_DIR: '' } })).toBe('/var/lib/strongroom')
})
