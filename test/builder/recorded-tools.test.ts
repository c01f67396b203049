// Goal: a version and a digest come from the image's record where it has both, and from nowhere else.

import { expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { recordedTool, versionIn } from '../../src/builder/recorded-tools.ts'

// Goal: a record without version or digest counts for nothing.
test('a record', () => {
  const dir = fs.mkdtempSync('/tmp/strongroom-records-')
  try {
    expect(recordedTool(dir, 'cargo')).toBeNull()
    const sha256 = 'ab'.repeat(32)
    const cargo = { version: 'cargo 1.97.1 (c980f4866 2026-06-30)', sha256 }
    const others = { rustc: { version: 'rustc 1.97.1' }, go: { sha256 }, nix: 'nix', npm: null }
    fs.writeFileSync(`${dir}/versions.json`, JSON.stringify({ cargo, ...others }))
    expect(recordedTool(dir, 'cargo')).toEqual(cargo)
    for (const name of ['rustc', 'go', 'nix', 'npm', 'make'] as const)
      expect([name, recordedTool(dir, name)]).toEqual([name, null])
    expect(recordedTool(null, 'cargo')).toBeNull()
  } finally {
    fs.rmSync(dir, { recursive: true })
  }
})

// Goal: the first line is the version, without the white space around it.
test('the line of a version', () => {
  expect(versionIn('GNU Make 4.4.1\nBuilt for x86_64-pc-linux-gnu\n')).toBe('GNU Make 4.4.1')
  expect(versionIn(' v20.19.2 \r\n')).toBe('v20.19.2')
  expect(versionIn('')).toBe('')
})
