// Goal: the archive holds what git would take, has the same bytes each time, and tar unpacks it to the same files.

import { afterAll, describe, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { failure } from '../../../scripts/rigs/until.ts'
import { packSource } from '../../../src/client/source/pack.ts'
import { listSource } from '../../../src/client/source/source-files.ts'

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-pack-`))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const bytesMax = 10_000_000

function project(name: string, files: Readonly<Record<string, string>>): string {
  const root = join(dir, name)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  return root
}

function git(root: string, ...args: string[]): void {
  const done = Bun.spawnSync(['git', '-C', root, '-c', 'user.name=a', '-c', 'user.email=a@example.org', ...args])
  expect([args, done.exitCode, done.stderr.toString()]).toEqual([args, 0, expect.any(String)])
}

const FILES = {
  'Cargo.toml': '[package]',
  'src/main.rs': 'fn main() {}',
  'src/target/kept.rs': '',
  'target/debug/x': 'built',
  'result/x': 'built',
  'strongroom-out/x': 'built',
  'notes.log': 'ignored',
  'sub/ignored.txt': 'ignored',
  'sub/kept.txt': 'kept',
  '.gitignore': '*.log\n',
  'sub/.gitignore': 'ignored.txt\n',
}
const KEPT = ['.gitignore', 'Cargo.toml', 'src/main.rs', 'src/target/kept.rs', 'sub/.gitignore', 'sub/kept.txt']

describe('which files', () => {
  test('goal: a directory that is no repository, with its .gitignore files', async () => {
    const { paths, leftOut } = await listSource(project('plain', FILES))
    expect(paths).toEqual(KEPT)
    expect(leftOut).toEqual(['target', 'result', 'strongroom-out', 'what .gitignore names'])
  })

  test('goal: a repository: what is tracked and what is new, but not what is deleted', async () => {
    const root = project('repository', { ...FILES, 'gone.rs': '' })
    git(root, 'init', '--quiet')
    git(root, 'add', '--all')
    git(root, 'add', '--force', 'notes.log')
    git(root, 'commit', '--quiet', '--message', 'one')
    rmSync(join(root, 'gone.rs'))
    writeFileSync(join(root, 'new.rs'), '')
    const { paths, leftOut } = await listSource(root)
    expect(paths).toEqual([...KEPT.slice(0, 2), 'new.rs', 'notes.log', ...KEPT.slice(2)])
    expect(leftOut[0]).toBe('.git')
    // A directory within it is a project of its own.
    expect((await listSource(join(root, 'sub'))).paths).toEqual(['.gitignore', 'kept.txt'])
  })

  test('goal: nothing to build is refused', async () => {
    mkdirSync(join(dir, 'empty'))
    expect(await failure(listSource(join(dir, 'empty')))).toMatchObject({ code: 'invalid_request' })
  })
})

describe('the archive', () => {
  test('goal: the same bytes for the same files, whenever they were written', async () => {
    const root = project('same', { a: 'a', 'b/c': 'c' })
    const first = await packSource(root, ['a', 'b/c'], bytesMax)
    utimesSync(join(root, 'a'), 1, 1)
    const second = await packSource(root, ['a', 'b/c'], bytesMax)
    expect(Buffer.from(second.bytes).equals(first.bytes)).toBe(true)
  })

  test('goal: tar unpacks it to the same files: modes, links, long names, names that are not of ASCII, and large ones', async () => {
    const long = `${'d'.repeat(90)}/${'e'.repeat(90)}/ü`
    const root = project('all', {
      'run.sh': '#!/bin/sh',
      [long]: 'long',
      block: 'x'.repeat(512),
      big: 'y'.repeat(3_000_000),
      none: '',
    })
    chmodSync(join(root, 'run.sh'), 0o700)
    symlinkSync('run.sh', join(root, 'link'))
    const paths = ['big', 'block', long, 'link', 'none', 'run.sh']
    const { bytes } = await packSource(root, paths, bytesMax)
    const out = join(dir, 'out')
    mkdirSync(out)
    writeFileSync(join(dir, 'all.tar.gz'), bytes)
    const tar = Bun.spawnSync(['tar', '--extract', '--gzip', '--file', join(dir, 'all.tar.gz'), '--directory', out])
    expect([tar.exitCode, tar.stderr.toString()]).toEqual([0, ''])
    for (const path of ['big', 'block', long, 'none', 'run.sh']) {
      expect([path, readFileSync(join(out, path)).equals(readFileSync(join(root, path)))]).toEqual([path, true])
    }
    expect(readlinkSync(join(out, 'link'))).toBe('run.sh')
    expect([statSync(join(out, 'run.sh')).mode & 0o777, statSync(join(out, 'none')).mode & 0o777]).toEqual([
      0o755, 0o644,
    ])
  })

  test('goal: the bytes are those that an earlier version wrote', async () => {
    const bytes = (count: number) => Uint8Array.from({ length: count }, (_, at) => (at * 7) % 251)
    const root = project('recorded', { 'sub/x': '' })
    const long = `sub/${'n'.repeat(120)}`
    for (const [path, count] of Object.entries({ empty: 0, large: 2_500_000, run: 512, [long]: 3, ü: 1 })) {
      writeFileSync(join(root, path), bytes(count))
      chmodSync(join(root, path), path === 'run' ? 0o755 : 0o644)
    }
    symlinkSync('run', join(root, 'link'))
    symlinkSync('t'.repeat(130), join(root, 'long-link'))
    const paths = ['empty', 'large', 'link', 'long-link', 'run', long, 'ü']
    const { bytes: packed } = await packSource(root, paths, bytesMax)
    const digests = [packed, gunzipSync(packed)].map(data => createHash('sha256').update(data).digest('hex'))
    expect([packed.length, ...digests]).toEqual([
      19_261,
      '54401a48cf6185eddb76ba9be5cb06269d61174c693d8b6ffacf9218251cef46',
      'aa2284109eed39f90d7a904ea5b23366f53085676c7e964f3f017b2481ab0414',
    ])
  })

  test('goal: what is too large is refused while it is packed', async () => {
    const root = project('large', {})
    mkdirSync(root, { recursive: true })
    writeFileSync(join(root, 'noise'), crypto.getRandomValues(new Uint8Array(65_536)))
    expect(await failure(packSource(root, ['noise'], 1_000))).toMatchObject({ code: 'invalid_request' })
  })
})
