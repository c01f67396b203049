// The tar of a backup has the bytes that it always had, and is read whole or refused.

import { afterAll, describe, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { failure } from '../../scripts/rigs/until.ts'
import { TarReader, tarStream } from '../../src/backup/tar.ts'
import { resultOr } from '../../src/base/result-or.ts'

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-backup-tar-`))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const bytes = (count: number) => Uint8Array.from({ length: count }, (_, at) => (at * 7) % 251)
const large = join(dir, 'large')
writeFileSync(large, bytes(2_500_000))
const FILES = [
  { name: 'manifest.json', bytes: 3, content: bytes(3) },
  { name: 'files/0', bytes: 0, content: bytes(0) },
  { name: 'files/1', bytes: 512, content: bytes(512) },
  { name: 'files/2', bytes: 2_500_000, content: { file: large } },
]
const read = async (stream: AsyncIterable<Uint8Array>) => Buffer.concat(await Array.fromAsync(stream))
const openLarge = () =>
  readdirSync('/proc/self/fd').filter(fd => resultOr(() => readlinkSync(`/proc/self/fd/${fd}`), '') === large)

describe('writing', () => {
  test('goal: bytes that an earlier version wrote', async () => {
    const tar = await read(tarStream(FILES, 1_790_000_000))
    expect([tar.length, createHash('sha256').update(tar).digest('hex')]).toEqual([
      2_504_192,
      'ae2e3f274f61674cd4118482e25c464dcf57dcaf8359a785c610aae630ecedad',
    ])
  })

  test('goal: a file that is shorter than its size ends the stream with an error; a stream that is left closes its file', async () => {
    const short = tarStream([{ name: 'a', bytes: 2_500_001, content: { file: large } }], 0)
    expect(await failure(read(short))).toMatchObject({ message: expect.stringContaining('became shorter') })
    const reader = tarStream(FILES.slice(3), 0).getReader()
    for (let pieces = 0; pieces < 2; pieces += 1) await reader.read()
    expect(openLarge()).toHaveLength(1)
    await reader.cancel()
    expect(openLarge()).toEqual([])
  })
})

/** Chunks that split headers and contents anywhere. */
const chunked = (tar: Uint8Array, chunkBytes: number) =>
  new ReadableStream<Uint8Array>({
    start: controller => {
      for (let at = 0; at < tar.length; at += chunkBytes) controller.enqueue(tar.subarray(at, at + chunkBytes))
      controller.close()
    },
  })

async function readAll(stream: ReadableStream<Uint8Array>): Promise<[string, number][]> {
  const reader = new TarReader(stream)
  const files: [string, number][] = []
  for (let next = await reader.next(); next !== null; next = await reader.next()) {
    files.push([next.name, (await read(reader.content(next.bytes))).length])
  }
  await reader.end()
  return files
}

describe('reading', () => {
  test('goal: every file, however the bytes come', async () => {
    const tar = await read(tarStream(FILES.slice(0, 3), 0))
    for (const chunkBytes of [1, 511, 513, tar.length]) {
      expect(await readAll(chunked(tar, chunkBytes))).toEqual([
        ['manifest.json', 3],
        ['files/0', 0],
        ['files/1', 512],
      ])
    }
  })

  test('goal: an end in the middle, and more behind the end', async () => {
    const tar = await read(tarStream(FILES.slice(0, 3), 0))
    for (const length of [0, 511, 512, 514, 1_023, 2_500]) {
      const problem = await failure(readAll(chunked(tar.subarray(0, length), 100)))
      expect([length, problem]).toMatchObject([length, { message: expect.stringContaining('ends in the middle') }])
    }
    const more = (count: number) => Buffer.concat([tar.subarray(0, -512), new Uint8Array(count)])
    expect(await readAll(chunked(more(65_536), 512))).toHaveLength(3)
    expect(await failure(readAll(chunked(more(65_537), 512)))).toMatchObject({
      message: expect.stringContaining('more behind its end'),
    })
  })
})
