// Goal: what a manifest needs and git ignores is named before anything is sent, with the option that sends it.

import { afterAll, describe, expect, test } from 'bun:test'
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { failure } from '../../../scripts/rigs/until.ts'
import { findLacking, refuseLacking } from '../../../src/client/build/lacking.ts'
import { listSource } from '../../../src/client/source/source-files.ts'

const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-lacking-`))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

let projects = 0

function project(files: Readonly<Record<string, string>>): string {
  projects += 1
  const root = join(dir, `p${projects}`)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  return root
}

function git(root: string, ...args: string[]): void {
  const config = ['-c', 'user.name=a', '-c', 'user.email=a@example.org', '-c', 'protocol.file.allow=always']
  const done = Bun.spawnSync(['git', '-C', root, ...config, ...args])
  expect([args, done.exitCode, done.stderr.toString()]).toEqual([args, 0, expect.any(String)])
}

async function lackingOf(root: string, projectDir: string | null = null, include: readonly string[] = []) {
  const { paths } = await listSource(root, include)
  return findLacking(root, paths, projectDir)
}

const crate = '[package]\nname = "a"\nversion = "0.1.0"\n'
const vendorConfig = '[source.crates-io]\nreplace-with = "v"\n[source.v]\ndirectory = "vendor"\n'
const vendored = {
  '.cargo/config.toml': vendorConfig,
  'vendor/b/Cargo.toml': crate,
  'vendor/b/out.log': 'x',
  'vendor/b/.cargo-checksum.json': '{"files":{"Cargo.toml":"00","out.log":"00","gone":"00"}}',
}

describe('a Cargo project whose .gitignore names', () => {
  test('goal: its lock, which --include sends', async () => {
    const root = project({ 'Cargo.toml': crate, 'Cargo.lock': 'version = 4', '.gitignore': 'Cargo.lock\n' })
    const lacking = await lackingOf(root)
    expect(lacking).toEqual([
      { path: 'Cargo.lock', why: 'Cargo.toml needs it, and git ignores it', isNeeded: true, remedy: 'include' },
    ])
    expect(() => refuseLacking(lacking)).toThrow(
      'the build needs what would not be sent: Cargo.lock (Cargo.toml needs it, and git ignores it)',
    )
    expect(await failure((async () => refuseLacking(lacking))())).toMatchObject({
      code: 'invalid_request',
      remedy: 'send it: --include Cargo.lock',
    })
    expect(await lackingOf(root, null, ['./Cargo.lock'])).toEqual([])
    expect((await listSource(root, ['Cargo.lock'])).paths).toEqual(['.gitignore', 'Cargo.lock', 'Cargo.toml'])
  })

  test("goal: a lock that the project's build does not take is a remark alone", async () => {
    const files = { 'Cargo.toml': crate, 'Cargo.lock': '', 'fuzz/Cargo.toml': crate, 'fuzz/Cargo.lock': '' }
    const root = project({ ...files, '.gitignore': '/fuzz/Cargo.lock\n' })
    const lacking = await lackingOf(root)
    expect(lacking.map(({ path, isNeeded }) => [path, isNeeded])).toEqual([['fuzz/Cargo.lock', false]])
    expect(() => refuseLacking(lacking)).not.toThrow()
    // The member's lock is the one above it, which is sent.
    expect((await lackingOf(root, 'fuzz')).map(({ isNeeded }) => isNeeded)).toEqual([false])
    const own = project({ ...files, '.gitignore': 'Cargo.lock\n' })
    expect((await lackingOf(own, 'fuzz')).map(({ path, isNeeded }) => [path, isNeeded])).toEqual([
      ['Cargo.lock', true],
      ['fuzz/Cargo.lock', true],
    ])
  })

  test('goal: its vendored packages, or one file that they list', async () => {
    const root = project({ 'Cargo.toml': crate, 'Cargo.lock': '', ...vendored, '.gitignore': 'vendor/\n' })
    expect(await lackingOf(root)).toEqual([
      { path: 'vendor', why: '.cargo/config.toml names it, and git ignores it', isNeeded: true, remedy: 'include' },
    ])
    expect(await lackingOf(root, null, ['vendor'])).toEqual([])
    const partly = project({ 'Cargo.toml': crate, 'Cargo.lock': '', ...vendored, '.gitignore': '*.log\n' })
    expect((await lackingOf(partly)).map(({ path, why }) => [path, why])).toEqual([
      ['vendor', '.cargo/config.toml names it, and git ignores vendor/b/out.log'],
    ])
    expect(await lackingOf(partly, null, ['vendor/'])).toEqual([])
  })

  test('goal: a package of the same tree, and one that is outside', async () => {
    const manifest = `${crate}[dependencies]\npath = "0.1"\nc = { path = "crates/c" }\nd = { path = "../d" }\n`
    const more = '[patch.crates-io]\ne = { path = "e" }\n[lib]\npath = "lib.rs"\n[workspace]\nmembers = ["f", "g*"]\n'
    const packages = { 'crates/c/Cargo.toml': crate, 'e/Cargo.toml': crate, 'f/Cargo.toml': crate }
    const ignored = '.gitignore'
    const root = project({ 'Cargo.toml': manifest + more, 'Cargo.lock': '', ...packages, [ignored]: 'c/\ne/\nf/\n' })
    const lacking = await lackingOf(root)
    expect(lacking.map(({ path, remedy, isNeeded }) => `${path} ${remedy} ${isNeeded}`).sort()).toEqual([
      '../d outside true',
      'crates/c include true',
      'e include true',
      'f include true',
    ])
    expect(await failure((async () => refuseLacking(lacking))())).toMatchObject({
      remedy:
        'send it: --include f --include crates/c --include e; name a directory that contains it, and --project-dir',
    })
  })

  test('goal: nothing at all is missing where git ignores nothing that is named', async () => {
    const root = project({ 'Cargo.toml': crate, 'Cargo.lock': '', ...vendored, '.gitignore': 'notes\n', notes: '' })
    expect(await lackingOf(root)).toEqual([])
    // A manifest that is no TOML is the build's to report.
    expect(await lackingOf(project({ 'Cargo.toml': '[[[', '.cargo/config.toml': '=' }))).toEqual([])
  })
})

test("goal: a flake's lock, unless a lock of another toolchain is sent", async () => {
  const flake = { 'flake.nix': '{}', 'flake.lock': '{}', '.gitignore': 'flake.lock\n' }
  expect((await lackingOf(project(flake))).map(({ path, isNeeded }) => [path, isNeeded])).toEqual([
    ['flake.lock', true],
  ])
  const both = project({ ...flake, 'Cargo.toml': crate, 'Cargo.lock': '' })
  expect((await lackingOf(both)).map(({ path, isNeeded }) => [path, isNeeded])).toEqual([['flake.lock', false]])
})

// Goal: modules of Go that git ignores are named before anything is sent; a build that names a module proxy can do
// without them, unless the listing is sent, by which go takes every package from there.
test('vendored modules of Go', async () => {
  const sent = { 'go.mod': 'module a\n', 'go.sum': 'x\n', 'main.go': 'package main\n' }
  const modules = {
    'vendor/modules.txt': '# example.org/b v1.0.0\n## explicit\nexample.org/b\nexample.org/b/out\n',
    'vendor/example.org/b/b.go': 'package b\n',
    'vendor/example.org/b/out/c.go': 'package out\n',
  }
  const root = project({ ...sent, ...modules, '.gitignore': 'vendor/\n' })
  const why = 'go.mod has its modules there, and git ignores it'
  const lacking = await lackingOf(root)
  expect(lacking).toEqual([{ path: 'vendor', why, isNeeded: true, remedy: 'include' }])
  expect(await failure((async () => refuseLacking(lacking))())).toMatchObject({ remedy: 'send it: --include vendor' })
  const { paths } = await listSource(root, [])
  expect(findLacking(root, paths, null, { hasGoProxy: true })).toEqual([
    { path: 'vendor', why, isNeeded: false, remedy: 'include' },
  ])
  expect(await lackingOf(root, null, ['vendor'])).toEqual([])
  const partly = project({ ...sent, ...modules, '.gitignore': 'out/\n' })
  const part = await listSource(partly, [])
  expect(findLacking(partly, part.paths, null, { hasGoProxy: true })).toEqual([
    {
      path: 'vendor',
      why: 'vendor/modules.txt names vendor/example.org/b/out, and git ignores it',
      isNeeded: true,
      remedy: 'include',
    },
  ])
  const below = Object.fromEntries(
    Object.entries({ ...sent, ...modules }).map(([path, text]) => [`tool/${path}`, text]),
  )
  const other = project({ ...below, '.gitignore': 'vendor/\n' })
  expect((await lackingOf(other)).map(({ path, isNeeded }) => [path, isNeeded])).toEqual([['tool/vendor', false]])
  expect((await lackingOf(other, 'tool')).map(({ path, isNeeded }) => [path, isNeeded])).toEqual([
    ['tool/vendor', true],
  ])
})

describe('submodules', () => {
  const inner = project({ 'lib.rs': '', 'Cargo.toml': crate, ignored: '', '.gitignore': 'ignored\n' })
  git(inner, 'init', '--quiet')
  git(inner, 'add', '--all')
  git(inner, 'commit', '--quiet', '--message', 'one')
  const outer = project({ 'Cargo.toml': `${crate}[dependencies]\nb = { path = "deps/b" }\n`, 'Cargo.lock': '' })
  git(outer, 'init', '--quiet')
  git(outer, 'submodule', '--quiet', 'add', inner, 'deps/b')
  git(outer, 'submodule', '--quiet', 'add', inner, 'docs/theme')
  git(outer, 'add', '--all')
  git(outer, 'commit', '--quiet', '--message', 'one')

  test('goal: files of an initialised one are sent, also new ones, and its .gitignore counts', async () => {
    writeFileSync(join(outer, 'deps/b/new.rs'), '')
    writeFileSync(join(outer, 'deps/b/ignored'), '')
    const { paths } = await listSource(outer)
    expect(paths).toEqual([
      '.gitmodules',
      'Cargo.lock',
      'Cargo.toml',
      ...['.gitignore', 'Cargo.toml', 'lib.rs', 'new.rs'].map(name => `deps/b/${name}`),
      ...['.gitignore', 'Cargo.toml', 'lib.rs'].map(name => `docs/theme/${name}`),
    ])
    expect(await lackingOf(outer)).toEqual([])
    // As a directory that is no repository, with the repositories in it.
    const copy = join(dir, 'copy')
    cpSync(outer, copy, { recursive: true })
    rmSync(join(copy, '.git'), { recursive: true })
    for (const name of ['deps/b', 'docs/theme']) rmSync(join(copy, name, '.git'))
    cpSync(join(inner, '.git'), join(copy, 'deps/b/.git'), { recursive: true })
    expect((await listSource(copy)).paths).toEqual(paths)
  })

  test('goal: one without files is named, and refused where the manifest needs it', async () => {
    const clone = join(dir, 'clone')
    git(dir, 'clone', '--quiet', outer, clone)
    const lacking = await lackingOf(clone)
    expect(lacking.map(({ path, why, isNeeded }) => [path, why, isNeeded])).toEqual([
      ['deps/b', 'a submodule that has no files here, and that Cargo.toml needs', true],
      ['docs/theme', 'a submodule that has no files here', false],
    ])
    expect(await failure((async () => refuseLacking(lacking))())).toMatchObject({
      remedy: 'run `git submodule update --init --recursive`',
    })
  })
})

test('goal: a .gitmodules with long runs of spaces is read in linear time, and bounds what it names', () => {
  const spaces = ' '.repeat(60_000)
  const long = project({
    '.gitmodules': `[submodule "a"]\r\n\tpath = libs/a \r\n\turl = x\r\n[submodule "b"]\npath = b${spaces}c\n`,
  })
  const startedAt = performance.now()
  expect(findLacking(long, ['.gitmodules'], null).map(({ path }) => path)).toEqual(['libs/a', `b${spaces}c`])
  expect(performance.now() - startedAt).toBeLessThan(1000)
  const lists = Array.from({ length: 3 }, (_, at) => `d${at}/.gitmodules`)
  const text = Array.from({ length: 500 }, (_, at) => `[submodule "${at}"]\npath = s${at}\n`).join('')
  const many = project(Object.fromEntries(lists.map(list => [list, text])))
  expect(findLacking(many, lists, null)).toHaveLength(1000)
  const large = project({ '.gitmodules': 'path = a\n'.padEnd(64 * 1024 + 1, '#') })
  expect(findLacking(large, ['.gitmodules'], null)).toEqual([])
})

describe('--include', () => {
  const root = project({ 'a/b': '', '.gitignore': 'a/\ntarget/\n', 'target/x': '', c: '' })
  git(root, 'init', '--quiet')

  test('goal: a directory, a file, and what lies in an output directory, each once', async () => {
    symlinkSync('b', join(root, 'a/link'))
    const { paths } = await listSource(root, ['a', 'a/b', 'target/x', 'c'])
    expect(paths).toEqual(['.gitignore', 'a/b', 'a/link', 'c', 'target/x'])
  })

  test('goal: a path that is not below the source is refused, also in .git', async () => {
    expect(existsSync(join(root, '.git/HEAD'))).toBe(true)
    for (const path of ['../p1', '/etc/passwd', '.', '..', '.git', '.git/HEAD', 'a/../..', 'missing']) {
      expect([path, await failure(listSource(root, [path]))]).toMatchObject([path, { code: 'invalid_request' }])
    }
  })
})
