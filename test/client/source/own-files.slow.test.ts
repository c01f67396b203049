// Files of a client that are no source: its keys, and the results of builds.

import { afterAll, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { refuseKeys, takesResults } from '../../../src/client/source/own-files.ts'

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-own-`))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const ca = `ca_abcd2345_${'a1'.repeat(9)}`
const gw = `gw_abcd2345_${'b2'.repeat(16)}`

// Goal: a source with a key of service A, B or C is not sent, and the refusal names the file and never the key.
test.each([
  ['keys/key.txt', `${ca}\n`],
  ['gw-key.txt', `${gw}\n`],
  ['without-line-end', ca],
])('the key in %s', (path, text) => {
  const root = mkdtempSync(join(dir, 'key-'))
  mkdirSync(join(root, 'keys'))
  writeFileSync(join(root, 'main.rs'), 'fn main() {}')
  writeFileSync(join(root, path), text)
  const act = () => refuseKeys(root, ['main.rs', path])
  expect(act).toThrow(`${path} is an API key, and the service would get it with the source`)
  expect(act).not.toThrow(text.trim())
})

// Goal: registration lines, prefixes, longer texts that quote a key, directories and links are no keys.
test('what is no key', () => {
  const root = mkdtempSync(join(dir, 'none-'))
  const texts = [`ca_abcd2345_sha256_${'0'.repeat(64)}\n`, 'ca_abcd2345_\n', `KEY=${ca}\n`, `${ca}a\n`, `xx_${gw}`]
  texts.forEach((text, at) => {
    writeFileSync(join(root, `${at}`), text)
  })
  mkdirSync(join(root, 'directory'))
  writeFileSync(join(dir, 'outside'), ca)
  symlinkSync(join(dir, 'outside'), join(root, 'link'))
  expect(() => refuseKeys(root, ['0', '1', '2', '3', '4', 'directory', 'link', 'gone'])).not.toThrow()
})

// Goal: results within the source are named if later builds would send them, and not where they are left out.
test('where results are', () => {
  const root = mkdtempSync(join(dir, 'results-'))
  expect(Bun.spawnSync(['git', '-C', root, 'init', '--quiet']).exitCode).toBe(0)
  writeFileSync(join(root, '.gitignore'), 'ignored/\n')
  mkdirSync(join(root, 'ignored'))
  mkdirSync(join(root, 'out'))
  expect(takesResults(root, root)).toBe(true)
  expect(takesResults(root, join(root, 'out'))).toBe(true)
  expect(takesResults(root, join(root, 'ignored'))).toBe(false)
  expect(takesResults(root, join(root, 'strongroom-out'))).toBe(false)
  expect(takesResults(root, join(root, 'target/results'))).toBe(false)
  expect(takesResults(root, join(dir, 'elsewhere'))).toBe(false)
  expect(takesResults(root, `${root}-out`)).toBe(false)
})
