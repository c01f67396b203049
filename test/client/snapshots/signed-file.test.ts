// Goal: a ciphertext goes to the VM in pieces, whatever its size; what is read beside it is bounded and named.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { digestOf, readSigned, streamOf } from '../../../src/client/snapshots/signed-file.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-signed-'))
afterAll(() => rmSync(dir, { recursive: true }))
const file = join(dir, 'work.age')
const sizeBytes = 5_000_000
writeFileSync(file, 'header')
truncateSync(file, sizeBytes)

/** Pieces, and whether it was found to be another file. */
async function streamed(startBytes: number, sha256: string) {
  const pieces: Uint8Array[] = []
  let isOther = false
  const onOther = () => {
    isOther = true
  }
  for await (const piece of streamOf('lines\n', file, { startBytes, sha256, onOther })) pieces.push(piece)
  return { pieces, all: Buffer.concat(pieces), isOther }
}

test('goal: the text, then the file from its byte on, in pieces of 256 KiB at most', async () => {
  const { pieces, all, isOther } = await streamed(3, await digestOf(file))
  expect([all.length, all.subarray(0, 9).toString(), isOther]).toEqual([sizeBytes + 3, 'lines\nder', false])
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(262_144)
})

test('goal: of a file that is another than the one that was checked the end is held back, and it is reported', async () => {
  const checked = await digestOf(file)
  for (const [at, text] of [
    [0, 'Header'],
    [sizeBytes, 'more'],
  ] as const) {
    const whole = readFileSync(file)
    writeFileSync(file, Buffer.concat([whole.subarray(0, at), Buffer.from(text), whole.subarray(at + text.length)]))
    const { all, isOther } = await streamed(6, checked)
    expect([isOther, all.length < statSync(file).size]).toEqual([true, true])
    writeFileSync(file, whole)
  }
  // All of it is the end.
  writeFileSync(file, 'small')
  expect((await streamed(2, checked)).all.toString()).toBe('lines\n')
  expect((await streamed(2, await digestOf(file))).all.toString()).toBe('lines\nall')
  writeFileSync(file, 'header')
  truncateSync(file, sizeBytes)
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
