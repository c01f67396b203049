import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeTree } from '../../scripts/rigs/build/sources.ts'
import { pinnedRust } from '../../src/builder/cargo/rust-toolchain.ts'
import { directoryIn, readLock } from '../../src/builder/project.ts'
import { TOOLCHAINS } from '../../src/builder/toolchains.ts'
import { hashTree } from '../../src/linux/source/git-tree.ts'

let root = ''
beforeAll(() => {
  root = fs.mkdtempSync(join(tmpdir(), `srt-${process.pid}-project-`))
  writeTree(root, {
    'real/member/Cargo.toml': '',
    'real/Cargo.lock': 'version = 4\n',
    'rust-toolchain.toml': '[toolchain]\nchannel = "1.80"\ncomponents = ["clippy"]\n',
    'old/rust-toolchain': 'nightly-2026-01-01\n',
    'odd/rust-toolchain.toml': '[toolchain]\npath = "/opt/rust"\nchannel = 7\n',
    'data.bin': `version https://git-lfs.github.com/spec/v1\noid sha256:${'ab'.repeat(32)}\nsize 12345\n`,
    'docs/lfs.md': 'A pointer begins with: version https://git-lfs.github.com/spec/v1\n',
    'large.bin': `version https://git-lfs.github.com/spec/v1\n${'x'.repeat(2000)}`,
  })
  fs.symlinkSync('real', join(root, 'link'))
  fs.symlinkSync('/usr', join(root, 'out'))
  fs.symlinkSync('real/Cargo.lock', join(root, 'Cargo.lock'))
})
afterAll(() => fs.rmSync(root, { recursive: true, force: true }))

describe('a source', () => {
  // Goal: a path of cargo's leads to a directory of the source, by its path without links, or to none.
  test('directories', () => {
    expect(directoryIn(root, '')).toBe('')
    expect(directoryIn(root, 'real/member')).toBe('real/member')
    expect(directoryIn(root, 'link/member')).toBe('real/member')
    for (const path of ['out', 'out/lib', '..', 'none', 'data.bin']) expect(directoryIn(root, path)).toBeNull()
  })

  // Goal: the recorded lock is the file itself, never one behind a link.
  test('locks', async () => {
    expect(await readLock(root, TOOLCHAINS.cargo, 'real/Cargo.lock')).toMatchObject({ path: 'real/Cargo.lock' })
    for (const path of ['Cargo.lock', 'link/Cargo.lock', 'none/Cargo.lock'])
      expect(readLock(root, TOOLCHAINS.cargo, path)).rejects.toThrow(/Cargo.toml without Cargo.lock/)
  })

  // Goal: the toolchain file is the one that rustup takes: the nearest, in either form.
  test('pinned compilers', async () => {
    expect(await pinnedRust(root, 'real/member')).toMatchObject({ path: 'rust-toolchain.toml', channel: '1.80' })
    expect(await pinnedRust(root, 'old')).toMatchObject({ path: 'old/rust-toolchain', channel: 'nightly-2026-01-01' })
    expect(pinnedRust(root, 'odd')).rejects.toThrow(/odd\/rust-toolchain.toml: does not name a channel/)
  })

  // Goal: Git LFS pointers are found by their form, and each directory has git's own id.
  test('pointers and directories', async () => {
    const copy = fs.mkdtempSync(join(tmpdir(), `srt-${process.pid}-tree-`))
    try {
      for (const name of ['data.bin', 'docs', 'large.bin', 'real'])
        fs.cpSync(join(root, name), join(copy, name), { recursive: true })
      const tree = await hashTree(copy, { bytesMax: 1e6, entriesMax: 100, timeSeconds: 0 })
      expect(tree.lfsPointers).toEqual(['data.bin'])
      expect([...tree.directories.keys()].sort()).toEqual(['', 'docs', 'real', 'real/member'])
      expect(tree.directories.get('')).toBe(tree.sha256)
      const alone = await hashTree(join(copy, 'real'), { bytesMax: 1e6, entriesMax: 100, timeSeconds: 0 })
      expect(tree.directories.get('real')).toBe(alone.sha256)
    } finally {
      fs.rmSync(copy, { recursive: true, force: true })
    }
  })
})
