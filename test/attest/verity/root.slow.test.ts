// dm-verity against the real veritysetup: roots, trees and verdicts.

import { afterAll, describe, expect, test } from 'bun:test'
import {
  closeSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Malformed } from '../../../src/attest/malformed.ts'
import { type ByteSource, verityRoot, verityRootOf } from '../../../src/attest/verity/root.ts'
import {
  readVeritySuperblock,
  VERITY_SUPERBLOCK,
  type VerityParameters,
  veritySuperblockBytes,
} from '../../../src/attest/verity/superblock.ts'
import { verityLevels } from '../../../src/attest/verity/tree.ts'
import { checkVerity } from '../../../src/attest/verity/verify.ts'
import { fromHex, toHex } from '../../../src/base/bytes.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-verity-`))
afterAll(() => rmSync(dir, { recursive: true }))

const sourceOf = (bytes: Uint8Array): ByteSource => ({
  read: async (offset, length) => bytes.slice(offset, offset + length),
})
const native = (bytes: Uint8Array) => new Uint8Array(new Bun.CryptoHasher('sha256').update(bytes).digest())
const uuid = '12345678-9abc-4def-8123-456789abcdef'

type Case = { blocks: number; data?: number; hash?: number; salt?: string; isSparse?: boolean }

/** Formats data with the real tool. Sparse data are zeros but for a few bytes. */
function format({ blocks, data = 4096, hash = 4096, salt = '-', isSparse = false }: Case) {
  const dataPath = join(dir, 'data')
  const hashPath = join(dir, 'hash')
  rmSync(hashPath, { force: true })
  const file = openSync(dataPath, 'w')
  if (isSparse) writeSync(file, 'not only zeros', Math.floor((blocks * data) / 3))
  else
    writeSync(
      file,
      Uint8Array.from({ length: blocks * data }, (_, at) => (at * 7 + (at >> 8)) & 0xff),
    )
  ftruncateSync(file, blocks * data)
  closeSync(file)
  const options = [`--data-block-size=${data}`, `--hash-block-size=${hash}`, `--salt=${salt}`, `--uuid=${uuid}`]
  const run = Bun.spawnSync(['veritysetup', 'format', ...options, dataPath, hashPath])
  const root = /Root hash:\s+([0-9a-f]{64})/.exec(run.stdout.toString())?.[1]
  if (root === undefined) throw new Error(`veritysetup: ${run.stderr}`)
  const saltBytes = salt === '-' ? new Uint8Array(0) : (fromHex(salt) ?? new Uint8Array(0))
  const parameters: VerityParameters = {
    dataBlockBytes: data,
    hashBlockBytes: hash,
    dataBlocks: blocks,
    salt: saltBytes,
  }
  return {
    root: fromHex(root) ?? new Uint8Array(0),
    parameters,
    data: new Uint8Array(readFileSync(dataPath)),
    hashes: new Uint8Array(readFileSync(hashPath)),
  }
}

const salt32 = 'ab'.repeat(32)
const cases: Case[] = [
  { blocks: 1 },
  { blocks: 2 },
  { blocks: 128, salt: salt32 },
  { blocks: 129, salt: salt32 },
  { blocks: 1000, salt: 'cd'.repeat(256) },
  { blocks: 1, data: 512, hash: 512, salt: salt32 },
  { blocks: 17, data: 512, hash: 512 },
  { blocks: 4097, data: 512, hash: 512, salt: salt32 },
  { blocks: 300, data: 1024, hash: 512, salt: '00' },
  { blocks: 300, data: 512, hash: 4096, salt: salt32 },
  { blocks: 129, data: 4096, hash: 1024 },
  { blocks: 65, data: 2048, hash: 2048, salt: salt32 },
]

describe('against veritysetup', () => {
  // Goal: root and parameters are those of the real tool, with its superblock and without, in whatever pieces the data
  // come.
  test.each(cases.map((item, index) => [index, item] as const))('case %d', async (_index, item) => {
    const made = format(item)
    const found = await verityRoot({ data: sourceOf(made.data), hashes: sourceOf(made.hashes), hashOffset: 0 })
    expect(toHex(found.rootHash)).toBe(toHex(made.root))
    expect(found.superblock).toEqual({ ...made.parameters, uuid })
    const pieces = async function* () {
      for (let at = 0; at < made.data.length; at += 3001) yield made.data.subarray(at, at + 3001)
    }
    const streamed = await verityRootOf(pieces(), made.parameters, { hash: native })
    expect(streamed.rootHash).toEqual(made.root)
    const image = { data: sourceOf(made.data), hashes: sourceOf(made.hashes), hashOffset: 0 }
    const checks = await checkVerity(image, { rootHash: made.root, uuid })
    expect(checks.map(({ name, outcome }) => [name, outcome])).toEqual([
      ['verity-superblock', 'pass'],
      ['verity-tree', 'pass'],
      ['verity-root', 'pass'],
    ])
  })

  // Goal: three levels, and a last block of each that is mostly empty: where trees go wrong.
  test('128 * 128 + 1 blocks', async () => {
    const made = format({ blocks: 128 * 128 + 1, salt: salt32, isSparse: true })
    expect(verityLevels(made.parameters)).toEqual([
      { firstBlock: 3, blockCount: 129 },
      { firstBlock: 1, blockCount: 2 },
      { firstBlock: 0, blockCount: 1 },
    ])
    const image = { data: sourceOf(made.data), hashes: sourceOf(made.hashes), hashOffset: 0 }
    const checks = await checkVerity(image, { rootHash: made.root, uuid: 'any' }, { hash: native })
    expect(checks.map(({ outcome }) => outcome)).toEqual(['pass', 'pass', 'pass'])
  })

  // Goal: data and hashes in one file, as in our images; the real tool agrees that it is sound.
  test('one file', async () => {
    const made = format({ blocks: 40, salt: salt32 })
    const path = join(dir, 'image')
    writeFileSync(path, made.data)
    const hashOffset = made.data.length
    const options = [`--hash-offset=${hashOffset}`, `--salt=${salt32}`, '--data-blocks=40', `--uuid=${uuid}`]
    expect(Bun.spawnSync(['veritysetup', 'format', ...options, path, path]).exitCode).toBe(0)
    const bytes = new Uint8Array(readFileSync(path))
    const checks = await checkVerity({ data: sourceOf(bytes), hashOffset }, { rootHash: made.root, uuid })
    expect(checks.map(({ outcome }) => outcome)).toEqual(['pass', 'pass', 'pass'])
    const verify = [`--hash-offset=${hashOffset}`, path, path, toHex(made.root)]
    expect(Bun.spawnSync(['veritysetup', 'verify', ...verify]).exitCode).toBe(0)
    // A sound superblock inside the data: hashes that are their own data are refused.
    bytes.copyWithin(hashOffset - 4096, hashOffset, hashOffset + veritySuperblockBytes)
    const inside = { data: sourceOf(bytes), hashOffset: hashOffset - 4096 }
    expect(readVeritySuperblock(bytes.slice(inside.hashOffset).subarray(0, 512)).dataBlocks).toBe(40)
    await expect(verityRoot(inside)).rejects.toThrow('the data reach into the hashes')
    expect((await checkVerity(inside, { rootHash: made.root, uuid }))[0]).toMatchObject({ outcome: 'fail' })
  })
})

describe('damage', () => {
  const made = format({ blocks: 150, data: 512, hash: 512, salt: salt32 })
  const outcome = async (data: Uint8Array, hashes: Uint8Array, change: object = {}) => {
    const image = { data: sourceOf(data), hashes: sourceOf(hashes), hashOffset: 0 }
    const checks = await checkVerity(image, { rootHash: made.root, uuid, ...change }, { hash: native })
    return checks.find(check => check.outcome === 'fail')?.name ?? 'sound'
  }
  const flipped = (bytes: Uint8Array, at: number) => {
    const copy = bytes.slice()
    copy[at] = (copy[at] ?? 0) ^ (1 << (at % 8))
    return copy
  }

  // Goal: no byte of superblock or tree, and no block of the data, can change without a failed check.
  test('every byte', async () => {
    expect(await outcome(made.data, made.hashes)).toBe('sound')
    for (let at = 0; at < made.hashes.length; at += 1) {
      if ((await outcome(made.data, flipped(made.hashes, at))) === 'sound') throw new Error(`hash byte ${at}`)
    }
    for (let at = 0; at < made.data.length; at += 509) {
      if ((await outcome(flipped(made.data, at), made.hashes)) === 'sound') throw new Error(`data byte ${at}`)
    }
  }, 60_000)

  // Goal: each kind of damage fails the check that names it.
  test('by name', async () => {
    expect(await outcome(made.data, flipped(made.hashes, 20))).toBe('verity-superblock')
    expect(await outcome(made.data, flipped(made.hashes, 512))).toBe('verity-tree')
    expect(await outcome(made.data, made.hashes, { rootHash: new Uint8Array(32) })).toBe('verity-root')
    expect(await outcome(made.data, made.hashes, { rootHash: new Uint8Array(0) })).toBe('verity-root')
    expect(await outcome(made.data, made.hashes, { uuid: 'another' })).toBe('verity-superblock')
    expect(await outcome(made.data.subarray(1), made.hashes)).toBe('verity-tree')
    expect(await outcome(made.data, made.hashes.subarray(0, -1))).toBe('verity-tree')
    expect(await outcome(made.data, made.hashes.subarray(0, 511))).toBe('verity-superblock')
    // The same data with another salt are sound in themselves, and under another root.
    const other = format({ blocks: 150, data: 512, hash: 512, salt: 'cd' })
    expect(await outcome(made.data, other.hashes, { rootHash: other.root })).toBe('sound')
    expect(await outcome(made.data, other.hashes)).toBe('verity-root')
  })

  // Goal: what the source throws is the caller's to see, not a verdict.
  test('a source that fails', async () => {
    const data = { read: async () => Promise.reject(new Error('disk gone')) }
    const image = { data, hashes: sourceOf(made.hashes), hashOffset: 0 }
    await expect(checkVerity(image, { rootHash: made.root, uuid })).rejects.toThrow('disk gone')
  })

  // Goal: parameters that no tree can have, and data that are too short or too long, have no root.
  test('refusals', async () => {
    const { parameters } = made
    const short = made.data.subarray(0, -512)
    for (const bad of [
      { dataBlockBytes: 513 },
      { dataBlockBytes: 256 },
      { hashBlockBytes: 1 << 17 },
      { dataBlocks: 0 },
      { dataBlocks: 2 ** 41 },
      { salt: new Uint8Array(257) },
      { dataBlocks: 151 },
    ])
      await expect(verityRootOf(sourceOf(made.data), { ...parameters, ...bad })).rejects.toBeInstanceOf(Malformed)
    await expect(verityRootOf(sourceOf(short), parameters)).rejects.toBeInstanceOf(Malformed)
    const stream = async function* (...parts: Uint8Array[]) {
      yield* parts
    }
    await expect(verityRootOf(stream(made.data, made.data), parameters)).rejects.toBeInstanceOf(Malformed)
    await expect(verityRootOf(stream(short), parameters)).rejects.toBeInstanceOf(Malformed)
  })

  // Goal: hostile superblocks end in a verdict, quickly, whatever they claim.
  test('hostile input', async () => {
    const superblock = made.hashes.slice(0, veritySuperblockBytes)
    await fuzz({ samples: [superblock], count: 2000, sizeBytesMax: 600 }, async input => {
      try {
        readVeritySuperblock(input)
      } catch (error) {
        if (!(error instanceof Malformed)) throw error
      }
      await outcome(made.data, Uint8Array.from([...input, ...made.hashes.subarray(512)]))
    })
  }, 60_000)
})

// Goal: the superblock's layout has no gap and no overlap.
test('layout', () => {
  let end = 0
  for (const [offset, sizeBytes] of Object.values<readonly [number, number]>(VERITY_SUPERBLOCK)) {
    expect(offset).toBe(end)
    end += sizeBytes
  }
  expect(end).toBe(512)
})
