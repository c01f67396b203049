// Goal: a result's archive writes the files that were verified, below one new directory, and nothing else anywhere: of
// an archive that is refused nothing is left.

import { afterAll, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { paxRecord, type TarEntry, tarOf } from '../../../scripts/rigs/archive-bytes.ts'
import { failure } from '../../../scripts/rigs/until.ts'
import { unpackResult } from '../../../src/client/build/unpack.ts'

const directory = mkdtempSync(join(tmpdir(), 'strongroom-unpack-'))
afterAll(() => rmSync(directory, { recursive: true }))
let count = 0

const jobId = '4f9d2c1e-0000-4000-8000-000000000001'
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')

/** A directory to unpack in, and what comes of it. */
async function unpack(entries: readonly TarEntry[], digests: Readonly<Record<string, string>>) {
  const output = join(directory, String(++count))
  mkdirSync(output)
  const archive = `${output}.tgz`
  writeFileSync(archive, Bun.gzipSync(Buffer.from(tarOf(entries))))
  const run = () => unpackResult(archive, { output, jobId, digests: new Map(Object.entries(digests)) })
  return { output, run }
}

const pax = (key: string, value: string): TarEntry => ({ name: 'pax', type: 'x', content: paxRecord(key, value) })

test('goal: the files of the one directory, with their content and who may run them', async () => {
  const long = `project/${'d/'.repeat(17)}deep`
  const { output, run } = await unpack(
    [
      { name: 'project/', type: '5' },
      { name: './project/a.txt', content: 'one' },
      { name: 'project/bin/tool', content: 'two', mode: '0000755\0' },
      pax('path', long),
      { name: 'short', content: 'three' },
    ],
    { 'a.txt': sha256('one'), 'bin/tool': sha256('two'), [long.slice(8)]: sha256('three') },
  )
  expect(await run()).toBe(join(output, 'project'))
  expect(readdirSync(output)).toEqual(['project'])
  const of = (name: string) => join(output, 'project', name)
  expect([readFileSync(of('a.txt'), 'utf8'), readFileSync(of('bin/tool'), 'utf8')]).toEqual(['one', 'two'])
  expect(readFileSync(join(output, long), 'utf8')).toBe('three')
  expect(['a.txt', 'bin/tool'].map(name => statSync(of(name)).mode & 0o111)).toEqual([0, 0o111])
  // The name is taken by now: the next one has the job's id behind it.
  expect(await run()).toBe(join(output, 'project-4f9d2c1e'))
  expect(readdirSync(output).toSorted()).toEqual(['project', 'project-4f9d2c1e'])
})

// Goal: nothing is written outside, nothing that was not verified stays, and the message names what is wrong.
test.each([
  [
    'a name that stands twice',
    [
      { name: 'p/a', content: 'x' },
      { name: 'p/a', content: 'x' },
    ],
    { a: sha256('x') },
    '"a" stands in it twice, or as a file and a directory',
  ],
  [
    'a file that is also a directory',
    [
      { name: 'p/a', content: 'x' },
      { name: 'p/a/b', content: 'x' },
    ],
    { a: sha256('x'), 'a/b': sha256('x') },
    '"a/b" stands in it twice, or as a file and a directory',
  ],
  ['a file that was not verified', [{ name: 'p/a', content: 'x' }], {}, '"a" is not the file that was verified'],
  ['another content', [{ name: 'p/a', content: 'x' }], { a: sha256('y') }, '"a" is not the file that was verified'],
  ['a file that is missing', [{ name: 'p/a', content: 'x' }], { a: sha256('x'), b: sha256('') }, '1 files, and 2 were'],
  ['the way up', [{ name: 'p/../../up', content: 'x' }], {}, '"p/../../up" leaves its directory'],
  ['an absolute name', [{ name: '/tmp/a', content: 'x' }], {}, '"/tmp/a" leaves its directory'],
  ['a file beside the directory', [{ name: 'a', content: 'x' }], { a: sha256('x') }, '"a" leaves its directory'],
  ['a control character', [{ name: 'p/a\u0007', content: 'x' }], {}, 'is not of plain ASCII'],
  ['two directories', [{ name: 'p/a', content: 'x' }, { name: 'q/a' }], { a: sha256('x') }, 'more than one top-level'],
  ['a symbolic link', [{ name: 'p/a', type: '2' }], {}, '"p/a" is neither a file nor a directory'],
  ['a hard link', [{ name: 'p/a', type: '1' }], {}, '"p/a" is neither a file nor a directory'],
  ['a device', [{ name: 'p/a', type: '3' }], {}, '"p/a" is neither a file nor a directory'],
  ['a directory with content', [{ name: 'p/', type: '5', content: 'x' }], {}, 'the directory "p/" has content'],
  ['nothing', [], {}, 'it is empty'],
  ['a record of another size', [pax('size', '9'), { name: 'p/a' }], {}, 'a pax record of size'],
  ['21 levels', [pax('path', 'd/'.repeat(20).concat('a')), { name: 'x' }], {}, 'leaves its directory'],
] as readonly [string, readonly TarEntry[], Readonly<Record<string, string>>, string][])(
  '%s',
  async (_, parts, digests, words) => {
    const { output, run } = await unpack(parts, digests)
    const fault = await failure(run())
    expect(fault).toMatchObject({ code: 'invalid_request', message: expect.stringContaining(words) })
    expect([readdirSync(output), existsSync(join(directory, 'up'))]).toEqual([[], false])
  },
)

test('goal: a name twice is refused, and so is an archive that ends early, is damaged or is none', async () => {
  const twice = [
    { name: 'p/a', content: 'x' },
    { name: 'p/a', content: 'x' },
  ]
  const { output, run } = await unpack(twice, { a: sha256('x') })
  expect((await failure(run())).message).toContain('"a" stands in it twice')
  expect(readdirSync(output)).toEqual([])
  const archive = `${output}.tgz`
  const whole = Bun.gzipSync(Buffer.from(tarOf([{ name: 'p/a', content: 'x' }])))
  const cut = Buffer.from(tarOf([{ name: 'p/a', content: 'x' }])).subarray(0, 700)
  const damaged = [
    [whole.subarray(0, whole.length / 2), 'it is damaged'],
    [Buffer.from('no gzip at all'), 'it is damaged'],
    [Bun.gzipSync(cut), 'it ends early'],
    [Bun.gzipSync(Buffer.alloc(512, 7)), 'a header that is not of ustar'],
  ] as const
  for (const [bytes, words] of damaged) {
    writeFileSync(archive, bytes)
    expect(await failure(run())).toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining(words),
    })
    expect(readdirSync(output)).toEqual([])
  }
})
