// Goal: a module has a hash of go.sum only if go compiles it from files that this builder compared; everything else is
// of the source, or refused. The hashes are those of go 1.23 itself.

import { expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { isChannelOf } from '../../src/attest/provenance/compiler.ts'
import { BuildFailure } from '../../src/builder/failure.ts'
import { checkModules, emptyUnused } from '../../src/builder/go/cache.ts'
import { goFailure } from '../../src/builder/go/causes.plan.ts'
import { type ListedPackage, readGoList, readLinked } from '../../src/builder/go/list.codec.ts'
import { describeModule, pinnedGo } from '../../src/builder/go/manifest.codec.ts'
import { checkLinked, modulesOf, programsOf } from '../../src/builder/go/modules.plan.ts'
import { hash1, readGoSum, unescaped } from '../../src/builder/go/sum.codec.ts'

const sum = `example.com/base v0.1.0 h1:mdam8UCrHMt0RaEDLVDTsbjxG/jC1hg1mIKovMzc72E=
example.com/base v0.1.0/go.mod h1:yeD0LzooDt24VfLrpfpdEjO/7TnfVdi0jd6nm0Ew3Pk=
`
const baseH1 = Buffer.from('mdam8UCrHMt0RaEDLVDTsbjxG/jC1hg1mIKovMzc72E=', 'base64').toString('hex')
const baseFiles = {
  'go.mod': 'module example.com/base\n\ngo 1.19\n',
  'base.go': 'package base\n\nfunc Base() int { return 21 }\n',
}

function failureOf(run: () => unknown): string {
  try {
    run()
  } catch (error) {
    if (error instanceof BuildFailure) return `${error.errorType}: ${error.message}`
    throw error
  }
  return 'none'
}

/** `after`: called with the cache once it is checked. */
async function checked(
  files: Record<string, string>,
  change?: (cache: string) => void,
  after?: (cache: string, found: ReadonlyMap<string, string>) => void,
): Promise<string> {
  const cache = fs.mkdtempSync(join(tmpdir(), 'strongroom-go-'))
  try {
    for (const [name, text] of Object.entries(files)) {
      fs.mkdirSync(dirname(join(cache, name)), { recursive: true })
      fs.writeFileSync(join(cache, name), text)
    }
    change?.(cache)
    const found = await checkModules(cache, readGoSum(sum))
    after?.(cache, found)
    return [...found].map(([place, h1]) => `${place} ${h1}`).join('\n')
  } catch (error) {
    if (error instanceof BuildFailure) return `${error.errorType}: ${error.message}`
    throw error
  } finally {
    fs.rmSync(cache, { recursive: true })
  }
}

const place = 'example.com/base@v0.1.0'
const good = {
  [`${place}/go.mod`]: baseFiles['go.mod'],
  [`${place}/base.go`]: baseFiles['base.go'],
  'cache/download/example.com/base/@v/v0.1.0.mod': baseFiles['go.mod'],
}

test('goal: each file of a fetched module counts, and so does each go.mod', async () => {
  expect(await checked(good)).toBe(`${place} ${baseH1}`)
  const start = 'checksum_mismatch: fetched '
  expect(await checked({ ...good, [`${place}/base.go`]: 'package base\n' })).toStartWith(
    `${start}example.com/base v0.1.0: its hash h1:`,
  )
  expect(await checked({ ...good, [`${place}/more.go`]: '' })).toStartWith(
    `${start}example.com/base v0.1.0: its hash h1:`,
  )
  expect(await checked({ ...good, 'example.com/b@v1.0.0/b.go': '' })).toBe(
    `${start}example.com/b v1.0.0: not in go.sum`,
  )
  expect(await checked({ ...good, 'example.com/Base@v0.1.0/b.go': '' })).toBe(`${start}module: not in go.sum`)
  expect(await checked({ ...good, 'cache/download/example.com/base/@v/v0.1.0.mod': 'module x\n' })).toStartWith(
    `${start}example.com/base v0.1.0/go.mod: its hash h1:`,
  )
  const linked = (cache: string) => fs.symlinkSync('/etc/passwd', join(cache, place, 'passwd'))
  expect(await checked(good, linked)).toBe(`${start}passwd: not a regular file`)
})

test('goal: of what a proxy sent, a build sees only what equals go.sum', async () => {
  const base64 = 'mdam8UCrHMt0RaEDLVDTsbjxG/jC1hg1mIKovMzc72E='
  const at = 'cache/download/example.com/base/@v'
  const sent = {
    ...good,
    [`${at}/v0.1.0.zip`]: 'PK',
    [`${at}/v0.1.0.info`]: '{"Version":"v0.1.0"}',
    [`${at}/v0.1.0.ziphash`]: 'what the proxy likes',
    [`${at}/v9.9.9.ziphash`]: 'of no module',
    [`${at}/v0.1.0.lock`]: '',
    [`${at}/list`]: 'v0.1.0',
    'cache/lock': '',
    'cache/vcs/a/config': 'x',
    'cache/download/sumdb/sum.example/latest': 'x',
  }
  const left = new Map<string, string>()
  const used = new Map<string, string[]>()
  const after = (cache: string, found: ReadonlyMap<string, string>) => {
    for (const name of fs.readdirSync(join(cache, 'cache'), { recursive: true, encoding: 'utf8' }))
      if (fs.statSync(join(cache, 'cache', name)).isFile())
        left.set(name, fs.readFileSync(join(cache, 'cache', name), 'utf8'))
    const files = () => fs.readdirSync(join(cache, place)).sort()
    emptyUnused(cache, found, [listed({})])
    used.set('listed', files())
    emptyUnused(cache, found, [listed({ dir: '/build/go/pkg/mod/example.com/base@v0.1.00/x' })])
    used.set('not listed', files())
  }
  expect(await checked(sent, undefined, after)).toBe(`${place} ${baseH1}`)
  expect(Object.fromEntries(left)).toEqual({
    'download/example.com/base/@v/v0.1.0.mod': baseFiles['go.mod'],
    'download/example.com/base/@v/v0.1.0.ziphash': `h1:${base64}`,
  })
  expect([...used]).toEqual([
    ['listed', ['base.go', 'go.mod']],
    ['not listed', []],
  ])
})

test('goal: go.sum is read as go writes it, and nothing else is', () => {
  expect([...readGoSum(sum)].map(([name, hashes]) => [name, [...hashes]])).toEqual([
    ['example.com/base v0.1.0', [baseH1]],
    [
      'example.com/base v0.1.0/go.mod',
      [Buffer.from('yeD0LzooDt24VfLrpfpdEjO/7TnfVdi0jd6nm0Ew3Pk=', 'base64').toString('hex')],
    ],
  ])
  const marked = `<<<<<<< HEAD\n${sum}=======\n${sum}>>>>>>> other\n`
  expect(failureOf(() => readGoSum(marked))).toBe(
    'source_invalid: go.sum: it contains merge conflict markers; run `go mod tidy`',
  )
  for (const line of ['x', 'a v1 h2:AAAA', `a v1 h1:${'A'.repeat(42)}=`, `a 1 h1:${'A'.repeat(43)}=`]) {
    expect(failureOf(() => readGoSum(`${line}\n`))).toStartWith('source_invalid: go.sum: ')
  }
  expect(hash1(new Map())).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
  expect(['!azure/!a', 'a', 'A', '!', '!A'].map(unescaped)).toEqual(['Azure/A', 'a', null, null, null])
})

const listed = (change: Partial<ListedPackage>): ListedPackage => ({
  importPath: 'example.com/base',
  isMain: false,
  dir: `/build/go/pkg/mod/${place}`,
  module: { path: 'example.com/base', version: 'v0.1.0', dir: `/build/go/pkg/mod/${place}`, isMain: false },
  replacement: null,
  imports: [],
  program: null,
  ...change,
})
const facts = (...packages: ListedPackage[]) => ({
  packages,
  projectDir: '',
  fetched: new Map([[place, baseH1]]),
  treeOf: (path: string) => (path.includes('none') ? null : { path, sha256: 'ab'.repeat(32) }),
})
const shown = (...packages: ListedPackage[]) =>
  modulesOf(facts(...packages)).packages.map(({ name, version, origin, from, replaces }) => [
    name,
    version,
    origin,
    from.kind,
    replaces,
  ])

test('goal: the origin of a module is where its files are, whatever go.mod says', () => {
  const base = { path: 'example.com/base', version: 'v0.1.0', dir: null, isMain: false }
  const at = (dir: string) => ({ path: './x', version: null, dir, isMain: false })
  expect(shown(listed({}))).toEqual([['example.com/base', 'v0.1.0', 'fetched', 'module', null]])
  expect(shown(listed({ dir: '/build/source/vendor/example.com/base', module: base }))).toEqual([
    ['example.com/base', 'v0.1.0', 'vendored', 'tree', null],
  ])
  expect(shown(listed({ dir: '/build/source/x/sub', module: base, replacement: at('/build/source/x') }))).toEqual([
    ['example.com/base', null, 'replaced', 'tree', 'example.com/base@v0.1.0'],
  ])
  expect(
    shown(
      listed({
        module: { ...base, path: 'example.com/old' },
        replacement: { ...base, dir: `/build/go/pkg/mod/${place}` },
      }),
    ),
  ).toEqual([['example.com/base', 'v0.1.0', 'replaced', 'module', 'example.com/old@v0.1.0']])
  // In a vendor directory, too, what stands in place of a module has its own name.
  const vendored = { dir: '/build/source/vendor/example.com/base', module: base }
  const evil = { path: 'example.com/evil', version: 'v1.9.9', dir: null, isMain: false }
  expect(shown(listed({ ...vendored, replacement: evil }))).toEqual([
    ['example.com/evil', 'v1.9.9', 'replaced', 'tree', 'example.com/base@v0.1.0'],
  ])
  const directory = { path: './x', version: null, dir: null, isMain: false }
  expect(shown(listed({ ...vendored, replacement: directory }))).toEqual([
    ['example.com/base', null, 'replaced', 'tree', 'example.com/base@v0.1.0'],
  ])
  const refused: Partial<ListedPackage>[] = [
    { dir: '/usr/share/x', module: base, replacement: at('/usr/share/x') },
    { dir: '/build/go/pkg/mod/example.com/base@v0.2.0' },
    { module: { ...base, version: 'v0.2.0' } },
    { module: { ...base, path: 'example.com/other' } },
    { dir: '/build/go/pkg/mod/example.com/base' },
    { dir: '/build/source/../go/x', module: base, replacement: at('/build/source/../go/x') },
    { dir: '/build/source/none', module: base, replacement: at('/build/source/none') },
    { dir: '/build/source/y', module: base, replacement: at('/build/source/x') },
    { dir: '/build/sources/x', module: base, replacement: at('/build/sources/x') },
    { dir: '/build/source/vendor/example.com/other', module: base },
  ]
  for (const change of refused) {
    expect([change.dir, failureOf(() => modulesOf(facts(listed(change))))]).toEqual([
      change.dir,
      expect.stringMatching(/^build_failed: go takes the package "example.com\/base" from /),
    ])
  }
})

test('goal: what the linker wrote into a program is in the list, and two programs have two names', () => {
  const text =
    '/build/target/tool: go1.23.5\n\tpath\texample.com/tool\n\tmod\texample.com/tool\t(devel)\t\n\tdep\texample.com/old\tv0.1.0\n\t=>\texample.com/base\tv0.1.0\th1:x=\n\tdep\texample.com/dir\tv1.0.0\n\t=>\t./dir\t(devel)\t\n\tbuild\t-trimpath=true\n'
  expect(readLinked(text)).toEqual({ programs: ['tool'], modules: ['example.com/base v0.1.0', './dir'] })
  const replacement = { path: './dir', version: null, dir: '/build/source/dir', isMain: false }
  expect(failureOf(() => checkLinked(readLinked(text), [listed({}), listed({ replacement })]))).toBe('none')
  expect(failureOf(() => checkLinked(readLinked(text), [listed({})]))).toBe(
    'build_failed: go linked the module ./dir, which `go list` does not name',
  )
  const program = (importPath: string, name: string) => listed({ importPath, program: name })
  // The linker's words on each program are compared, or nothing is built.
  const two = [listed({ replacement }), program('a', 'tool'), program('b', 'other')]
  expect(failureOf(() => checkLinked(readLinked(text), two))).toBe(
    'build_failed: `go version -m` names no modules of the program other',
  )
  expect(failureOf(() => checkLinked(readLinked(''), two))).toBe(
    'build_failed: `go version -m` names no modules of the program other',
  )
  expect(programsOf([program('a', 'x'), program('b', 'y'), listed({})])).toEqual(['x', 'y'])
  expect(failureOf(() => programsOf([program('a/x', 'x'), program('b/x', 'x')]))).toStartWith(
    'build_failed: two packages produce the same program, x: a/x and b/x; rename one',
  )
})

test('goal: only whole documents of packages with a module or of the standard library are a list', () => {
  const pkg = {
    ImportPath: 'a',
    Dir: '/d',
    Name: 'main',
    Target: '/build/go/bin/tool',
    Module: { Path: 'a', Main: true, Dir: '/d' },
  }
  const text = (...documents: object[]) => documents.map(item => `${JSON.stringify(item, null, '\t')}\n`).join('')
  expect(readGoList(text(pkg, { ImportPath: 'fmt', Dir: '/g', Standard: true, Imports: ['b'] }))).toEqual([
    {
      ...{ importPath: 'a', isMain: true, dir: '/d', replacement: null, imports: [], program: 'tool' },
      module: { path: 'a', version: null, dir: '/d', isMain: true },
    },
    { importPath: 'fmt', isMain: false, dir: '/g', module: null, replacement: null, imports: ['b'], program: null },
  ])
  expect(readGoList('')).toEqual([])
  expect(failureOf(() => readGoList(text({ ImportPath: 'a', Dir: '/d' })))).toStartWith(
    'source_invalid: vendor/modules.txt does not list the package "a", which go takes from "/d"; run `go mod vendor`',
  )
  for (const wrong of [
    'x',
    `${text(pkg)}x`,
    text({ ImportPath: 'a', Dir: '/d', Module: 7 }),
    text({ ...pkg, Imports: [7] }),
    '{\n}\n',
  ]) {
    expect(readGoList(wrong)).toBeNull()
  }
})

test('goal: names and the toolchain line of go.mod; a newer compiler than it names is one, as for go', () => {
  const nameOf = (text: string) => describeModule(text)?.name ?? null
  expect(['module example.com/tool/v2\n', '// x\nmodule "a/b" // c\n', 'go 1.2\n'].map(nameOf)).toEqual([
    'tool',
    'b',
    null,
  ])
  const pin = (text: string) => pinnedGo(text, 'go.mod')?.channel ?? null
  expect(['toolchain go1.24.1\n', 'toolchain default\n', '// toolchain go1.2\n'].map(pin)).toEqual([
    'go1.24.1',
    null,
    null,
  ])
  // Go reads a line whatever blanks are before it.
  expect(nameOf(' \tmodule example.com/blank\n')).toBe('blank')
  expect(pin('go 1.2\n \ttoolchain go1.98.7\n')).toBe('go1.98.7')
  const is = (channel: string) => isChannelOf(channel, 'go version go1.23.5 linux/amd64')
  expect(['go1.23.5', 'go1.23', 'go1.22.9', 'go1.23.6', 'go1.24', 'go2.0', 'go1.23.5-custom', 'x'].map(is)).toEqual([
    ...[true, true, true],
    ...[false, false, false, false, false],
  ])
})

// Goal: each cause that go prints has its error type and its remedy.
test.each([
  ['verifying x@v1: checksum mismatch', 'checksum_mismatch: the proxy serves a module whose hash'],
  ['missing go.sum entry for module providing package x', 'lock_missing: go.sum lacks a module'],
  ['go: updates to go.mod needed', 'source_invalid: go.mod does not match'],
  ['go: inconsistent vendoring in /build/source:', 'source_invalid: vendor/modules.txt does not match'],
  [
    'go: go.mod requires go >= 1.99 (running go 1.23.5; GOTOOLCHAIN=local)',
    "source_invalid: the project needs a newer Go than this builder's; lower the `go` line",
  ],
  ['main.go:3:8: module lookup disabled by GOPROXY=off', 'source_unreachable: a module cannot be fetched'],
  [
    'main.go:3:8: cannot find module providing package x/y: import lookup disabled by -mod=readonly',
    'source_invalid: go.mod does not match the project; run `go mod tidy`',
  ],
  [
    'main.go:3:8: cannot find module providing package x/y: import lookup disabled by -mod=vendor',
    'source_invalid: vendor/ lacks a package that the project needs; run `go mod vendor`',
  ],
  [
    'go: errors parsing go.mod:\ngo.mod:1: unknown directive: <<<<<<<',
    'source_invalid: go.mod contains merge conflict markers',
  ],
  ['go: errors parsing go.mod:\ngo.mod:1: unknown directive: x', 'source_invalid: go.mod has an error, or is for'],
  [
    'main.go:3:8: x@v0.1.0: reading https://p.example/x/@v/v0.1.0.zip: 404 Not Found',
    'source_unreachable: the module proxy of the request lacks a module; set go_proxy',
  ],
  ['main.go:3:8: use of internal package x/internal/y not allowed', 'source_invalid: the project imports an internal'],
  ['main.go:5:12: pattern dist/text: no matching files found', 'source_invalid: a file that `//go:embed` names'],
  ['/usr/bin/ld: cannot find -lnone: No such file', 'build_failed: C code needs a library that the builder lacks'],
  ['main.go:3:11: fatal error: none.h: No such file or directory', 'build_failed: C code includes a header'],
  ['Get "https://p.example/x": Forbidden', 'source_unreachable: a module cannot be fetched'],
  ['./main.go:3:2: undefined: x', 'build_failed: go build: exit code 1: '],
])('the cause of %s', (output, start) => {
  const failure = goFailure('go build: exit code 1', output, false)
  expect(`${failure.errorType}: ${failure.message}`).toStartWith(start)
})

// Goal: a module that a workspace would give fails with the workspace's own remedy, and other failures do not.
test('a workspace', () => {
  const messageOf = (output: string) => goFailure('go build: exit code 1', output, true).message
  const missing = 'cannot find module providing package x/y: import lookup disabled by -mod=readonly'
  for (const output of [missing, 'main.go:3:8: module lookup disabled by GOPROXY=off'])
    expect(messageOf(output)).toStartWith('builds ignore go.work, so name the modules of the workspace with')
  expect(messageOf('verifying x@v1: checksum mismatch')).toStartWith('the proxy serves a module whose hash')
})
