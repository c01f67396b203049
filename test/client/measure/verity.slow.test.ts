// Goal: `strongroom verity` computes veritysetup's root hashes, and notices one changed bit of data or tree.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checksOf, expectUsageError, run, runJson } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-verity-cli-'))
afterAll(() => rmSync(dir, { recursive: true }))

const blockBytes = 4096
/** One more than fit below one hash block, so that the tree has two levels. */
const blocks = 130
const hashOffset = String(blocks * blockBytes)
const salt = '00112233445566778899aabbccddeeff'
/** Printed by veritysetup 2.6.1 for this image. */
const root = '668f9a80f05542e0b1a1883e2a60be7ddf10eacc39aa01e4630dd5108ef70550'
const image = join(dir, 'root.img')

beforeAll(() => {
  const data = new Uint8Array(blocks * blockBytes)
  for (let block = 0; block < blocks; block += 1)
    data.fill((block * 7 + 3) & 255, block * blockBytes, (block + 1) * blockBytes)
  writeFileSync(image, data)
  const made = Bun.spawnSync([
    ...['veritysetup', 'format', image, image, `--hash-offset=${hashOffset}`, `--salt=${salt}`],
    ...['--uuid=12345678-1234-1234-1234-123456789abc', `--data-blocks=${blocks}`],
  ])
  expect(made.stdout.toString()).toContain(root)
})

/** The image with one bit changed. */
function damaged(name: string, offset: number): string {
  const path = join(dir, name)
  const bytes = readFileSync(image)
  bytes[offset] = (bytes[offset] ?? 0) ^ 1
  writeFileSync(path, bytes)
  return path
}

test('goal: the root is that of veritysetup, by superblock and by parameters', async () => {
  const bySuperblock = await runJson('verity', 'root', image, '--hash-offset', hashOffset)
  const byParameters = await runJson('verity', 'root', image, '--data-blocks', String(blocks), '--salt', salt)
  const document = { root_hash: root, data_blocks: blocks, data_block_size: 4096, hash_block_size: 4096, salt }
  expect([bySuperblock, byParameters]).toEqual([
    { code: 0, document },
    { code: 0, document },
  ])
  const text = await run('verity', 'root', image, '--hash-offset', hashOffset)
  expect(text).toEqual({
    code: 0,
    stdout: `root hash: ${root}\ndata:      130 blocks of 4096 bytes\nhashes:    blocks of 4096 bytes\nsalt:      ${salt}\n`,
    stderr: '',
  })
})

test('goal: the expected root passes, and a changed bit of data, tree or expectation fails', async () => {
  const expectation = ['--hash-offset', hashOffset, '--expect', root]
  const good = await run('verity', 'root', image, ...expectation)
  expect([good.code, good.stdout]).toEqual([
    0,
    'PASS verity-superblock: ok\nPASS verity-tree: ok\nPASS verity-root: ok\nVERDICT: PASS: 3 passed, 0 failed, 0 not checked\n',
  ])
  const data = await runJson('verity', 'root', damaged('data.img', 70 * blockBytes), ...expectation)
  expect([data.code, checksOf(data.document, 'FAIL')]).toEqual([1, ['verity-tree', 'verity-root']])
  const tree = await runJson('verity', 'root', damaged('tree.img', (blocks + 2) * blockBytes), ...expectation)
  expect([tree.code, checksOf(tree.document, 'FAIL')]).toEqual([1, ['verity-tree']])
  const superblock = await runJson('verity', 'root', damaged('superblock.img', blocks * blockBytes), ...expectation)
  expect([superblock.code, checksOf(superblock.document, 'FAIL')]).toEqual([1, ['verity-superblock']])
  const byParameters = ['--data-blocks', String(blocks), '--salt', salt, '--expect']
  expect((await run('verity', 'root', image, ...byParameters, root)).code).toBe(0)
  const other = await runJson('verity', 'root', image, ...byParameters, `${root.slice(0, -1)}1`)
  expect([other.code, checksOf(other.document, 'FAIL'), other.document.root_hash]).toEqual([1, ['verity-root'], root])
})

test('goal: usage errors and images that cannot be read exit 2', async () => {
  const sparse = join(dir, 'sparse.img')
  writeFileSync(sparse, '')
  truncateSync(sparse, 2 ** 42 + 4096)
  const errors: [string[], string][] = [
    [['verity', 'root'], "missing required argument 'image'"],
    [['verity', 'root', image], 'either --hash-offset or --data-blocks is needed'],
    [['verity', 'root', image, '--hash-offset', hashOffset, '--data-blocks', '1'], '--hash-offset names a superblock'],
    [['verity', 'root', image, '--salt', salt], 'required option --data-blocks is missing'],
    [['verity', 'root', image, '--data-blocks', '0'], "'--data-blocks <count>' argument '0' is invalid"],
    [['verity', 'root', image, '--data-blocks', '9999'], `${image}: verity: `],
    [['verity', 'root', image, '--data-blocks', '1', '--salt', 'xyz'], "'--salt <hex>' argument 'xyz' is invalid"],
    [['verity', 'root', image, '--data-blocks', '1', '--data-block-size', '1000'], 'data blocks of 1000 bytes'],
    [['verity', 'root', image, '--hash-offset', '4096'], 'verity superblock: signature'],
    [['verity', 'root', image, '--hash-offset', '99999999'], 'verity: 0 of 512 bytes'],
    [['verity', 'root', image, '--hash-offset', hashOffset, '--expect', '00'], 'It must be 32 bytes'],
    [['verity', 'root', join(dir, 'missing'), '--hash-offset', '0'], 'no such file'],
    [['verity', 'root', dir, '--hash-offset', '0'], 'it is not a regular file'],
    [['verity', 'root', '/dev/zero', '--data-blocks', '1'], 'it is not a regular file'],
    [['verity', 'root', sparse, '--data-blocks', '1'], 'bytes are too many'],
  ]
  for (const [argv, message] of errors) await expectUsageError(argv, message)
})
