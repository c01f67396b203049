// Goal: an input file is read whole or refused with its name, the option that named it, and what to do; no file is read
// far beyond what it may have.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { failure } from '../../scripts/rigs/until.ts'
import { Malformed } from '../../src/attest/malformed.ts'
import { remedyOf } from '../../src/terminal/exit.ts'
import {
  inputFault,
  isDirectory,
  readInput,
  readingInput,
  readJsonInput,
  readOptionalInput,
  readTextInput,
  unreadable,
} from '../../src/terminal/input-file.ts'
import { faultOf } from '../rigs/fault-of.ts'

const directory = mkdtempSync(join(tmpdir(), 'strongroom-input-'))
afterAll(() => rmSync(directory, { recursive: true }))
const file = join(directory, 'a')
const written = (content: string | Uint8Array, bytesMax = 64) => {
  writeFileSync(file, content)
  return { path: file, param: 'report', bytesMax }
}
const refusal = (work: () => unknown) => {
  const fault = faultOf(work)
  return [fault.code, fault.param ?? null, fault.message, remedyOf(fault)]
}

test('goal: as many bytes as may be, and one more is refused by the size of the file', () => {
  expect(readInput(written('x'.repeat(64)))).toHaveLength(64)
  expect(readInput(written(''))).toHaveLength(0)
  expect(refusal(() => readInput(written('x'.repeat(65))))).toEqual([
    'invalid_request',
    'report',
    `--report ${file}: 65 bytes, at most 64 are allowed`,
    'check that this is the right file',
  ])
})

test('goal: what says no size, such as a pipe or a file of the kernel, is bounded all the same', () => {
  const kernel = (bytesMax: number) => ({ path: '/proc/self/status', param: 'file', bytesMax })
  expect(readInput(kernel(65_536)).length).toBeGreaterThan(100)
  expect(refusal(() => readInput(kernel(100)))).toEqual([
    ...['invalid_request', 'file', '/proc/self/status: more than 100 bytes', 'check that this is the right file'],
  ])
  expect(refusal(() => readInput({ path: '/dev/zero', param: 'image', bytesMax: 1_000 }))[2]).toBe(
    '/dev/zero: more than 1000 bytes',
  )
})

test('goal: a file that is missing, a directory and a file of others are told apart, each with what to do', () => {
  const missing = join(directory, 'missing')
  writeFileSync(file, '')
  const tried = (path: string) => refusal(() => readInput({ path, param: 'vek', bytesMax: 1_000_000 })).slice(2)
  expect(tried(missing)).toEqual([`--vek ${missing}: there is no such file`, 'check the path'])
  expect(tried(join(file, 'below'))).toEqual([`--vek ${file}/below: there is no such file`, 'check the path'])
  expect(tried(directory)).toEqual([`--vek ${directory}: it is a directory`, 'name a file'])
  const failed = ['ENOENT', 'ENOTDIR', 'EISDIR', 'EACCES', 'EIO'].map(code => {
    const fault = unreadable({ path: '/a', param: 'vek' }, Object.assign(new Error('raw'), { code }))
    return `${code}: ${fault.message}; ${remedyOf(fault)}`
  })
  expect(failed).toEqual([
    'ENOENT: --vek /a: there is no such file; check the path',
    'ENOTDIR: --vek /a: there is no such file; check the path',
    'EISDIR: --vek /a: it is a directory; name a file',
    'EACCES: --vek /a: permission denied; run the command as a user who may read the file',
    'EIO: --vek /a: raw; check the path',
  ])
  expect([isDirectory(directory), isDirectory(file), isDirectory(missing)]).toEqual([true, false, false])
})

test('goal: an option that was left out is none; an argument is its path alone in a message', () => {
  expect(readOptionalInput({ path: undefined, param: 'vek', bytesMax: 1 })).toBeUndefined()
  expect(readOptionalInput(written('x'))).toEqual(Uint8Array.of(0x78))
  const words = ['file', 'image', 'crl'].map(param => inputFault({ path: '/a', param }, 'wrong', 'mend it').message)
  expect(words).toEqual(['/a: wrong', '/a: wrong', '--crl /a: wrong'])
})

test('goal: text is UTF-8, and JSON is strict: one value for each name, no more than 64 deep', () => {
  expect(readTextInput(written('ä'))).toBe('ä')
  expect(refusal(() => readTextInput(written(Uint8Array.of(0xff))))[2]).toBe(`--report ${file}: not UTF-8`)
  expect(readJsonInput(written('{"a":[1]}'))).toEqual({ a: [1] })
  for (const text of ['', '{', '{a:1}', "{'a':1}"]) {
    const [code, , message, remedy] = refusal(() => readJsonInput(written(text)))
    expect([text, code, remedy]).toEqual([text, 'invalid_request', 'correct the JSON in the file'])
    expect(message).toStartWith(`--report ${file}: not JSON: `)
  }
  const deep = (depth: number) => '['.repeat(depth) + ']'.repeat(depth)
  expect(readJsonInput(written(deep(64), 1_000))).toBeArray()
  for (const text of ['{"a":1,"a":2}', deep(65)]) {
    const [code, , message] = refusal(() => readJsonInput(written(text, 1_000)))
    expect([text, code]).toEqual([text, 'invalid_request'])
    expect(message).toStartWith(`--report ${file}: the file`)
  }
})

test('goal: what a reader finds malformed is a fault of the input, and no other failure is', async () => {
  const bad = () => {
    throw new Malformed('too short')
  }
  expect(await failure(readingInput('--vek /a', bad))).toMatchObject({
    code: 'invalid_request',
    message: '--vek /a: too short',
  })
  expect(await failure(readingInput('', bad))).toMatchObject({ message: 'too short' })
  const other = new TypeError('ours')
  expect(await failure(readingInput('/a', () => Promise.reject(other)))).toBe(other)
  expect(await readingInput('/a', async () => 7)).toBe(7)
})

test('goal: comments are left out where they may be, and end where every reader ends a line', () => {
  const reading = (content: string, hasComments = true) => readJsonInput(written(content), { hasComments })
  expect(reading('// one\r\n{\n  // "a": 2,\n"a": 1}')).toEqual({ a: 1 })
  for (const end of ['\r', '\u2028', '\u2029'])
    expect(refusal(() => reading(`// one${end}{"a":1}`))[2]).toContain('a line ends with CR alone, U+2028 or U+2029')
  expect(refusal(() => reading('// one\n{}', false))[2]).toContain('not JSON')
})
