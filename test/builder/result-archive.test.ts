// A result has the bytes that it always had, because receipts name their digest; a failure closes its files.

import { afterAll, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import {
  appendFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { failure, until } from '../../scripts/rigs/until.ts'
import { resultOr } from '../../src/base/result-or.ts'
import { artifactEntry, resultArchive } from '../../src/builder/result-archive.ts'

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-result-`))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const bytes = (count: number) => Uint8Array.from({ length: count }, (_, at) => (at * 7) % 251)
const large = join(dir, 'large')
writeFileSync(large, bytes(2_500_000))
const artifact = { name: 'bin/large', path: large, sizeBytes: 2_500_000, executable: true }
const BYTES = [
  { kind: 'bytes', path: 'receipt.json', bytes: bytes(700) },
  { kind: 'bytes', path: 'empty', bytes: bytes(0) },
  { kind: 'bytes', path: `long/${'n'.repeat(99)}`, bytes: bytes(512) },
] as const
const read = async (chunks: AsyncIterable<Uint8Array>) => Buffer.concat(await Array.fromAsync(chunks))
const sha256 = (data: Uint8Array) => createHash('sha256').update(data).digest('hex')

test('goal: bytes that an earlier version wrote, packed and unpacked', async () => {
  const packed = await read(resultArchive('project', [...BYTES, artifactEntry(artifact)]))
  expect([packed.length, sha256(packed)]).toEqual([
    19_206,
    'b7d96c161fe2c964e3370bfebb4d75090ee2c8e70b6a7fd6c45cef51848c56fd',
  ])
  expect(sha256(gunzipSync(packed))).toBe('f116313e42a13c64a915f24b2b42fd0c053eb122d5a0a1b08d0750a8ad55bf52')
})

test('goal: failures of an entry are those of the archive', async () => {
  const shorter = artifactEntry({ ...artifact, sizeBytes: 2_500_001 })
  const absent = artifactEntry({ ...artifact, path: join(dir, 'absent') })
  const long = { kind: 'bytes', path: 'n'.repeat(101), bytes: bytes(1) } as const
  for (const [entry, message] of [
    [shorter, 'changed while it was read'],
    [absent, 'missing'],
    [long, 'path too long'],
  ] as const) {
    expect(await failure(read(resultArchive('project', [...BYTES, entry])))).toMatchObject({
      message: expect.stringContaining(message),
    })
  }
})

test('goal: an archive that is left, and one that fails, close the artifact', async () => {
  const noise = join(dir, 'noise')
  writeFileSync(noise, crypto.getRandomValues(new Uint8Array(65_536)))
  for (let copies = 0; copies < 6; copies += 1) appendFileSync(noise, readFileSync(noise))
  const sizeBytes = statSync(noise).size
  const isOpen = () =>
    readdirSync('/proc/self/fd').some(fd => resultOr(() => readlinkSync(`/proc/self/fd/${fd}`), '') === noise)
  const entry = artifactEntry({ ...artifact, path: noise, sizeBytes })
  let wasOpen = false
  for await (const _ of resultArchive('project', [entry])) {
    // The first piece may come before the artifact is read.
    wasOpen = isOpen()
    if (wasOpen) break
  }
  await until('the artifact is closed', 5_000, () => !isOpen())
  expect(wasOpen).toBe(true)
  await failure(read(resultArchive('project', [{ ...entry, path: 'n'.repeat(101) }, entry])))
  await until('the artifact is closed', 5_000, () => !isOpen())
})
