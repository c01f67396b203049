// Goal: config check needs no root, and says of a file that it may not read just that, not that the file is bad.

import { afterAll, expect, test } from 'bun:test'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkFiles } from '../../src/cli/config-files.driver.ts'
import { defaultConfig } from '../../src/config/load.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-config-root-'))
chmodSync(dir, 0o755)
afterAll(() => rmSync(dir, { recursive: true }))

test('goal: without permission: a warning that names user and field', () => {
  for (const name of ['a.pem', 'a.key']) {
    writeFileSync(join(dir, name), '')
    chmodSync(join(dir, name), 0o600)
  }
  const config = defaultConfig()
  const tls = { ...config.tls, certificate_file: join(dir, 'a.pem'), key_file: join(dir, 'a.key') }
  const seteuid = process.seteuid?.bind(process)
  const getuid = process.getuid
  if (seteuid === undefined) throw new Error('no seteuid on this system')
  expect(getuid?.()).toBe(0)
  seteuid(1)
  try {
    const found = checkFiles({ ...config, tls }, Date.now()).filter(({ field }) => field.startsWith('tls.'))
    expect(found.map(({ kind, field }) => [kind, field])).toEqual([
      ['warning', 'tls.certificate_file'],
      ['warning', 'tls.key_file'],
    ])
    expect(found[0]?.message).toContain('uid 1 may not read it')
  } finally {
    seteuid(0)
  }
})
