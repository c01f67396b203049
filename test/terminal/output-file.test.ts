// Files that belong together are written together.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { utf8 } from '../../src/base/bytes.ts'
import { refuseExisting, writeOutput, writeOutputs } from '../../src/terminal/output-file.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'srt-output-'))
})
afterEach(() => rmSync(dir, { recursive: true }))

const output = (name: string, text = name) => ({ path: join(dir, name), param: name, bytes: utf8(text) })
const text = (name: string) => readFileSync(join(dir, name), 'utf8')

// Goal: both files are there, whole, and nothing else.
test('all', () => {
  writeOutputs([output('a'), output('b')], { replaces: false })
  expect([readdirSync(dir).toSorted(), text('a'), text('b')]).toEqual([['a', 'b'], 'a', 'b'])
})

// Goal: whatever stops the second, the first is not there either, and what was there before is as it was.
test('none', () => {
  writeFileSync(join(dir, 'old'), 'mine')
  mkdirSync(join(dir, 'folder'))
  symlinkSync(join(dir, 'old'), join(dir, 'link'))
  const cases = [
    [output('old'), '--old', 'it exists'],
    [output('folder'), '--folder', 'not a regular file'],
    [output('link'), '--link', 'not a regular file'],
    [output('missing/b'), '--missing/b', 'there is no such directory'],
    [output('a'), '--a', 'it is named twice'],
    [output('folder/../a'), '--folder/../a', 'it is named twice'],
  ] as const
  for (const [second, option, reason] of cases) {
    const write = () => writeOutputs([output('a'), second], { replaces: false })
    expect(write).toThrow(new RegExp(`^${option} .*${reason}`))
    expect([readdirSync(dir).toSorted(), text('old')]).toEqual([['folder', 'link', 'old'], 'mine'])
  }
})

// Goal: a failure after the first file is in its place takes it away again, and leaves a file that was replaced whole.
test('half', () => {
  writeFileSync(join(dir, 'old'), 'mine')
  // The name of the third is taken by a directory only once the first two are staged.
  const third = {
    ...output('c'),
    get bytes() {
      mkdirSync(join(dir, 'c'), { recursive: true })
      return utf8('c')
    },
  }
  expect(() => writeOutputs([output('a'), output('old', 'new'), third], { replaces: true })).toThrow('--c ')
  expect([readdirSync(dir).toSorted(), text('old')]).toEqual([['c', 'old'], 'new'])
})

// Goal: --out replaces a file, and nothing that is not one.
test('one', () => {
  writeOutput(join(dir, 'a'), utf8('1'))
  writeOutput(join(dir, 'a'), utf8('2'))
  expect([readdirSync(dir), text('a')]).toEqual([['a'], '2'])
  expect(() => writeOutput('/dev/null', utf8('1'))).toThrow('--out /dev/null: it exists and is not a regular file')
  expect(() => writeOutput(join(dir, 'none/a'), utf8('1'))).toThrow('there is no such directory')
  expect(() => refuseExisting(join(dir, 'a'))).toThrow('it exists')
})
