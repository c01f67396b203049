import { expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { sha256 } from '../../src/attest/hash.ts'
import { toHex, utf8 } from '../../src/base/bytes.ts'
import { packageOf, readCargoMessage } from '../../src/builder/cargo/cargo.plan.ts'
import { type Candidate, collect } from '../../src/builder/collect.ts'
import { BuildFailure } from '../../src/builder/failure.ts'

const limits = { artifactBytes: 1000, artifactCount: 3 }

async function collected(make: (root: string) => readonly Omit<Candidate, 'root'>[]): Promise<unknown> {
  const dir = fs.mkdtempSync('/tmp/strongroom-collect-')
  const root = join(dir, 'target')
  fs.mkdirSync(join(root, 'release'), { recursive: true })
  fs.writeFileSync(join(dir, 'outside'), 'secret')
  try {
    const found = await collect(
      make(root).map(candidate => ({ ...candidate, root })),
      limits,
    )
    return found.map(({ path: _, ...artifact }) => artifact)
  } catch (error) {
    if (error instanceof BuildFailure) return `${error.errorType}: ${error.message}`
    throw error
  } finally {
    fs.rmSync(dir, { recursive: true, force: true })
  }
}

const write = (root: string, name: string, text: string, mode = 0o644) => {
  fs.writeFileSync(join(root, 'release', name), text)
  fs.chmodSync(join(root, 'release', name), mode)
  return { name, relative: `release/${name}` }
}

// Goal: regular files come out sorted, with digest, size and whether they can be executed.
test('regular files', async () => {
  expect(await collected(root => [write(root, 'tool', 'b', 0o755), write(root, 'libx.so', 'aa')])).toEqual([
    { name: 'libx.so', executable: false, sizeBytes: 2, sha256: toHex(sha256(utf8('aa'))) },
    { name: 'tool', executable: true, sizeBytes: 1, sha256: toHex(sha256(utf8('b'))) },
  ])
})

// Goal: whatever a build names, nothing outside of its output is read, no link is followed, and no bound is passed.
test('what is no artifact', async () => {
  const cases: [(root: string) => readonly Omit<Candidate, 'root'>[], RegExp][] = [
    [() => [], /^no_artifacts/],
    [() => [{ name: 'x', relative: '../outside' }], /^build_failed: .*not below/],
    [() => [{ name: 'x', relative: 'release/../../outside' }], /^build_failed: .*not below/],
    [() => [{ name: 'x', relative: 'release//x' }], /^build_failed: .*not below/],
    [() => [{ name: 'x', relative: 'release/none' }], /^build_failed: .*missing, or cannot be read/],
    [() => [{ name: 'release', relative: 'release' }], /^build_failed: .*not a regular file/],
    [() => [{ name: '..', relative: 'release/x' }], /^build_failed: .*plain name/],
    [() => [{ name: 'a\u001b[2J', relative: 'release/x' }], /^build_failed: .*plain name/],
    [root => [write(root, 'x', 'x', 0o4755)], /^build_failed: .*set-user-ID/],
    [root => [write(root, 'x', 'x', 0o2755)], /^build_failed: .*set-user-ID/],
    [root => [write(root, 'x', 'x'), write(root, 'X', 'y')], /^build_failed: .*case/],
    [root => [write(root, 'x', 'x'.repeat(1001))], /^limit_exceeded/],
    [root => ['a', 'b', 'c', 'd'].map(name => write(root, name, name)), /^limit_exceeded/],
    [
      root => {
        fs.symlinkSync(join(root, '../outside'), join(root, 'release/l'))
        return [{ name: 'l', relative: 'release/l' }]
      },
      /^build_failed: .*a link/,
    ],
    [
      root => {
        fs.symlinkSync(join(root, '..'), join(root, 'd'))
        return [{ name: 'outside', relative: 'd/outside' }]
      },
      /^build_failed: .*below a link/,
    ],
    [
      root => {
        Bun.spawnSync(['mkfifo', join(root, 'release/f')])
        return [{ name: 'f', relative: 'release/f' }]
      },
      /^build_failed: .*not a regular file/,
    ],
  ]
  for (const [make, why] of cases) expect(await collected(make)).toMatch(why)
})

// Goal: cargo's messages count only for programs and C libraries of the source's own packages; anything else, forged or
// odd, is skipped.
test('messages of cargo', () => {
  const own = 'path+file:///build/source/app#0.1.0'
  const message = (kind: string[], more: object = {}) =>
    JSON.stringify({
      reason: 'compiler-artifact',
      package_id: own,
      target: { kind, name: 'app' },
      executable: null,
      filenames: [],
      ...more,
    })
  const filesOf = (line: string) => {
    const read = readCargoMessage(line)
    return read.kind === 'artifact' ? read.files : read.kind
  }
  expect(filesOf(message(['bin'], { executable: '/build/target/release/app' }))).toEqual(['/build/target/release/app'])
  const filenames = [
    '/build/target/release/libx.a',
    '/build/target/release/libx.rlib',
    '/build/target/release/libx.so',
    7,
  ]
  expect(filesOf(message(['lib', 'cdylib', 'staticlib'], { filenames }))).toEqual([
    '/build/target/release/libx.a',
    '/build/target/release/libx.so',
  ])
  expect(filesOf(message(['proc-macro'], { filenames }))).toEqual([])
  expect(filesOf(message(['custom-build'], { filenames }))).toBe('other')
  const foreign = { package_id: 'registry+https://index.example/#serde@1.0.0', filenames }
  expect(filesOf(message(['cdylib'], foreign))).toEqual([])
  for (const line of [
    '',
    'null',
    '[]',
    '{"reason":"compiler-artifact"}',
    'Compiling',
    '{"reason":"compiler-artifact","target":[]}',
  ]) {
    expect(filesOf(line)).toSatisfy(
      (found: unknown) => found === 'other' || (Array.isArray(found) && found.length === 0),
    )
  }
  expect(packageOf('registry+https://index.example/#serde@1.0.0')).toBe('serde 1.0.0')
  expect(packageOf(own)).toBe('app 0.1.0')
  expect(packageOf('serde 1.0.0 (registry+https://index.example/)')).toBe('serde 1.0.0')
})
