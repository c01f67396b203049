// Goal: a ciphertext goes to the VM in pieces, whatever its size; what is read beside it is bounded and named.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readSigned, streamOf } from '../../../src/client/snapshots/signed-file.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-signed-'))
afterAll(() => rmSync(dir, { recursive: true }))
const file = join(dir, 'work.age')
const sizeBytes = 5_000_000
writeFileSync(file, 'header')
truncateSync(file, sizeBytes)

test('goal: the text, then the file from its byte on, in pieces of 256 KiB at most', async () => {
  const pieces: Uint8Array[] = []
  for await (const piece of streamOf('lines\n', file, 3)) pieces.push(piece)
  const all = Buffer.concat(pieces)
  expect([all.length, all.subarray(0, 9).toString()]).toEqual([sizeBytes + 3, 'lines\nder'])
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(262_144)
})

test('goal: a missing, large or malformed signature names its file', () => {
  const refused = (text: string | null) => {
    if (text !== null) writeFileSync(`${file}.json`, text)
    expect(() => readSigned(file)).toThrow(`${file}.json`)
  }
  refused(null)
  refused('x'.repeat(20_000))
  refused('{"header":1}')
  refused(JSON.stringify({ header: '{}', signature: '' }))
  expect(() => readSigned(join(dir, 'none.age'))).toThrow('none.age: there is no such file')
  expect(() => readSigned(dir)).toThrow('there is no such file')
})
