// Goal: the file of certificates is for its owner alone, and a file that is not as we write it is as none: each
// certificate can be ordered again.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Row, readRows, writeRows } from '../../../src/http/acme/rows.ts'

const directory = mkdtempSync(join(tmpdir(), 'strongroom-rows-'))
afterAll(() => rmSync(directory, { recursive: true }))
const file = join(directory, 'rows.json')

const row: Row = {
  ...{ name: 'a.test', holder: 'gateway', spkiSha256: 'ab'.repeat(32), csr: 'AAAA', chain: 'PEM', renewAtMs: 5 },
  ...{ failures: 1, failure: { atMs: 3, type: null, detail: 'no' }, retryAtMs: 4, askedAtMs: 2 },
}

test('goal: rows are read as they were written', () => {
  expect(readRows(file)).toEqual([])
  const rows = [row, { ...row, holder: 'host' as const, chain: null, failure: null }]
  writeRows(file, rows)
  expect(readRows(file)).toEqual(rows)
  expect(statSync(file).mode & 0o777).toBe(0o600)
  expect(readFileSync(file, 'utf8')).toEndWith('}\n')
})

test('goal: as many rows as may be, and a file with one more, or with a row of another form, has none', () => {
  const written = (rows: unknown) => {
    writeFileSync(file, JSON.stringify({ rows }))
    return readRows(file).length
  }
  expect([written(Array(256).fill(row)), written(Array(257).fill(row))]).toEqual([256, 0])
  const wrong = [
    { ...row, name: 'x'.repeat(256) },
    { ...row, holder: 'guest' },
    { ...row, spkiSha256: 'x'.repeat(65) },
    { ...row, csr: 'x'.repeat(8_193) },
    { ...row, chain: 'x'.repeat(16_385) },
    { ...row, renewAtMs: '5' },
    { ...row, failure: { atMs: 3, type: 'x'.repeat(129), detail: '' } },
    { ...row, failure: { atMs: 3, type: null, detail: 'x'.repeat(513) } },
    { ...row, askedAtMs: null },
  ]
  for (const changed of wrong) expect([changed, written([changed])]).toEqual([changed, 0])
  for (const text of ['', '{', 'null', '[]', '{"rows":{}}']) {
    writeFileSync(file, text)
    expect([text, readRows(file)]).toEqual([text, []])
  }
})
