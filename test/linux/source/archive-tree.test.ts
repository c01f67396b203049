// Goal: one source has one tree id, however it is packed, and what is left out of an archive is named.

import { afterAll, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { type TarEntry, tarOf, zipOf } from '../../../scripts/rigs/archive-bytes.ts'
import { takeArchive } from '../../../src/linux/source/archive-tree.ts'

const dir = fs.mkdtempSync('/tmp/strongroom-archive-tree-')
afterAll(() => fs.rmSync(dir, { recursive: true, force: true }))

const file = (name: string, content: string): TarEntry => ({ name, content })
const plain = [file('p/Cargo.toml', '[package]\n'), file('p/src/main.rs', 'fn main() {}\n')]
/** `git mktree` of Cargo.toml and src/main.rs. */
const plainTree = 'cbfc906ac953e966965ff415d82dfb2840a2a426'

async function taken(archive: Uint8Array) {
  const at = fs.mkdtempSync(join(dir, 'case-'))
  fs.writeFileSync(join(at, 'device'), archive)
  fs.mkdirSync(join(at, 'into'))
  const bounds = { bytesMax: 1024 ** 2, entriesMax: 100, unprivileged: [], projectDir: null }
  const order = { device: join(at, 'device'), sizeBytes: archive.length, into: join(at, 'into') }
  const { tree, stripped, unpacked } = await takeArchive({ ...order, ...bounds })
  return { tree: tree.sha1, stripped, format: unpacked.format, leftOut: unpacked.leftOut, files: unpacked.fileCount }
}

const zipFiles = plain.map(({ name, content }) => ({ name: String(name), content: String(content) }))

// Goal: files that macOS adds, and a .git, change neither the tree nor its root, and are named.
test.each([
  ['tar', tarOf(plain), []],
  ['tar.gz', gzipSync(tarOf(plain)), []],
  ['tar.xz', Bun.spawnSync(['xz', '--stdout'], { stdin: tarOf(plain) }).stdout, []],
  ['tar.zst', Bun.zstdCompressSync(tarOf(plain)), []],
  ['zip', zipOf(zipFiles), []],
  [
    'tar',
    tarOf([file('.DS_Store', 'x'), file('p/._Cargo.toml', 'x'), ...plain, file('docs/.DS_Store', 'x')]),
    ['files that macOS adds: ".DS_Store", "p/._Cargo.toml", "docs/.DS_Store"'],
  ],
  [
    'zip',
    zipOf([...zipFiles, { name: '__MACOSX/p/._Cargo.toml', content: 'x' }]),
    ['__MACOSX with 1 entries, which Finder adds to a zip'],
  ],
  [
    'tar',
    tarOf([...plain, file('p/.git/HEAD', 'x'), { name: 'p/.git/objects/aa', type: '1', link: 'p/.git/HEAD' }]),
    ['.git with 2 entries, which is not trusted'],
  ],
] as const)('the same tree of a %s', async (format, archive, leftOut) => {
  const found = await taken(archive)
  expect(found).toEqual({ tree: plainTree, stripped: 'p', format, leftOut: [...leftOut], files: 2 })
})

// Goal: an archive of thousands of such files is named in one line of bounded length.
test('many files are counted', async () => {
  const entries = Array.from({ length: 30 }, (_, at) => file(`p/._${at}`, 'x'))
  const [remark] = (await taken(tarOf([...plain, ...entries]))).leftOut
  expect(remark).toEndWith('"p/._18", "p/._19" and 10 more')
})

// Goal: the archives that a Mac makes of a project, as they failed before, are the project.
test('only what macOS adds is no source', async () => {
  const only = tarOf([file('.DS_Store', 'x'), file('p/._a', 'x')])
  expect(await taken(only).catch((error: Error) => error.message)).toBe('source: there is no file in it')
})
