// Goal: a lock of npm or pnpm names only package files of a registry, each by one SHA-512, and
// every other form ends in a message with the package and a remedy.

import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { writeTree } from '../../../scripts/rigs/build/sources.ts'
import { readBuildFile } from '../../../src/builder/make/build-file.codec.ts'
import { installFailure, noArtifacts } from '../../../src/builder/node/causes.plan.ts'
import { installedByNpm, installedByPnpm, recordsOf } from '../../../src/builder/node/installed.ts'
import { isForBuilder, isRegistryAddress, sha512Of, tarballPath } from '../../../src/builder/node/lock.ts'
import { describePackageJson, installManifest, isSetIn } from '../../../src/builder/node/manifest.codec.ts'
import { readPackageLock } from '../../../src/builder/node/package-lock.codec.ts'
import { readPnpmLock } from '../../../src/builder/node/pnpm-lock.ts'
import { findProject } from '../../../src/builder/project.ts'
import { TOOLCHAINS } from '../../../src/builder/toolchains.ts'

const hash = `sha512-${Buffer.alloc(64, 7).toString('base64')}`
const hex = '07'.repeat(64)
const at = (name: string, version: string) => `https://registry.example/${name}/-/${name}-${version}.tgz`
const entry = (name: string, version: string, more: object = {}) => ({
  version,
  resolved: at(name, version),
  integrity: hash,
  ...more,
})
const npmLock = (packages: object, more: object = {}) =>
  JSON.stringify({ lockfileVersion: 3, packages: { '': { dependencies: { a: '1' } }, ...packages }, ...more })

describe('package-lock.json', () => {
  // Goal: places, names, hashes, flags and dependencies are the lock's.
  test('a lock that is read', () => {
    const lock = readPackageLock(
      npmLock({
        'node_modules/a': entry('a', '1.0.0', { dependencies: { b: '*', none: '*' } }),
        'node_modules/b': entry('b', '1.0.0', { optional: true, os: ['darwin'] }),
        'node_modules/a/node_modules/b': entry('b', '2.0.0', { peerDependencies: { a: '*' } }),
        'node_modules/c': entry('d', '1.0.0+build.1', { name: 'd', resolved: at('d', '1.0.0') }),
        'node_modules/c/node_modules/e': { version: '1.0.0', inBundle: true },
      }),
    )
    const [key, base] = ['node_modules/a', { sha512: hex, isOptional: false, isForBuilder: true }]
    const inner = `${key}/node_modules/b`
    expect(lock.packages).toEqual([
      { ...base, key, name: 'a', version: '1.0.0', dependsOn: [inner] },
      {
        ...base,
        key: 'node_modules/b',
        name: 'b',
        version: '1.0.0',
        isOptional: true,
        isForBuilder: false,
        dependsOn: [],
      },
      { ...base, key: inner, name: 'b', version: '2.0.0', dependsOn: [key] },
      { ...base, key: 'node_modules/c', name: 'd', version: '1.0.0+build.1', dependsOn: [] },
    ])
    expect(lock.direct).toEqual([key])
    const odd = readPackageLock(npmLock({ 'node_modules/a': entry('a', '1.0.0', { hasShrinkwrap: true, x: 1 }) }))
    expect(odd.installLock).toEqual({
      lockfileVersion: 3,
      requires: true,
      packages: { '': { dependencies: { a: '1' } }, 'node_modules/a': entry('a', '1.0.0') },
    })
  })

  // Goal: each form that names code without a hash, or from elsewhere than a registry, is refused
  // by name.
  test.each<[what: string, text: string, message: RegExp]>([
    ['no JSON', 'x', /^package-lock\.json: not a JSON object; run `npm install --package-lock-only/],
    ['version 1', '{"lockfileVersion":1}', /lockfileVersion "1" is neither 2 nor 3; run/],
    ['no packages', '{"lockfileVersion":3}', /without `packages`; run/],
    [
      'a workspace',
      npmLock({ 'node_modules/a': { link: true, resolved: 'packages/a' } }),
      /"node_modules\/a" is a workspace or a directory .*; move its files/,
    ],
    ['a member of one', npmLock({ 'packages/a': { version: '1.0.0' } }), /"packages\/a" is a workspace/],
    [
      'git',
      npmLock({ 'node_modules/a': entry('a', '1.0.0', { resolved: 'git+ssh://git@github.com/a/a.git#abc' }) }),
      /"node_modules\/a" comes from "git\+ssh:.*; publish it to one/,
    ],
    [
      'a file',
      npmLock({ 'node_modules/a': entry('a', '1.0.0', { resolved: 'file:a.tgz' }) }),
      /comes from "file:a\.tgz"/,
    ],
    [
      'an address',
      npmLock({ 'node_modules/a': entry('a', '1.0.0', { resolved: 'https://codeload.github.com/a/a/tar.gz/abc' }) }),
      /is not where a registry has a 1\.0\.0/,
    ],
    [
      'another package',
      npmLock({ 'node_modules/a': entry('b', '1.0.0') }),
      /"node_modules\/a" comes from "https:\/\/registry\.example\/b/,
    ],
    [
      'another version',
      npmLock({ 'node_modules/a': entry('a', '1.0.0', { resolved: at('a', '1.0.1') }) }),
      /is not where a registry has a 1\.0\.0/,
    ],
    [
      'no address',
      npmLock({ 'node_modules/a': { version: '1.0.0', integrity: hash } }),
      /lock again without omit-lockfile-registry-resolved/,
    ],
    [
      'no integrity',
      npmLock({ 'node_modules/a': entry('a', '1.0.0', { integrity: undefined }) }),
      /"node_modules\/a" has no integrity/,
    ],
    [
      'SHA-1',
      npmLock({ 'node_modules/a': entry('a', '1.0.0', { integrity: 'sha1-aaaa' }) }),
      /the integrity of "node_modules\/a" is "sha1-aaaa", but must be one sha512/,
    ],
    [
      'two hashes',
      npmLock({ 'node_modules/a': entry('a', '1.0.0', { integrity: `${hash} ${hash.replace('B', 'C')}` }) }),
      /must be one sha512/,
    ],
    [
      'a bundled package at the top',
      npmLock({ 'node_modules/a': { version: '1.0.0', inBundle: true } }),
      /"node_modules\/a" has no integrity/,
    ],
    ['a place outside', npmLock({ 'node_modules/../../a': entry('a', '1.0.0') }), /is not the path of a package/],
    ['an odd name', npmLock({ 'node_modules/a/b/c': entry('a', '1.0.0') }), /is not the path of a package/],
    [
      'a long place',
      npmLock({ [`node_modules/a${'/node_modules/a'.repeat(300)}`]: entry('a', '1.0.0') }),
      /is not the path of a package/,
    ],
    ['a range', npmLock({ 'node_modules/a': entry('a', '1.x') }), /has no version such as 1\.2\.3/],
  ])('%s', (_, text, message) => {
    expect(() => readPackageLock(text)).toThrow(message)
  })
})

const pnpmLock = (
  packages: string,
  more = '',
  importer = "dependencies:\n      a:\n        specifier: '1'\n        version: 1.0.0",
) =>
  `lockfileVersion: '9.0'\n${more}importers:\n  .:\n    ${importer}\npackages:\n  ${packages}\nsnapshots:\n  a@1.0.0: {}\n`

describe('pnpm-lock.yaml', () => {
  // Goal: a lock of version 6 is the same lock as one of version 9.
  test('versions 6 and 9', () => {
    const nine = readPnpmLock(`lockfileVersion: '9.0'
settings: {autoInstallPeers: true, excludeLinksFromLockfile: false}
importers:
  .:
    dependencies:
      a: {specifier: '1', version: 1.0.0(b@2.0.0)}
      c: {specifier: 'npm:b', version: b@2.0.0}
packages:
  a@1.0.0: {resolution: {integrity: ${hash}}, peerDependencies: {b: '*'}}
  b@2.0.0: {resolution: {integrity: ${hash}}, cpu: [arm64]}
snapshots:
  a@1.0.0(b@2.0.0): {dependencies: {b: 2.0.0}}
  b@2.0.0: {optional: true}
`)
    const six = readPnpmLock(`lockfileVersion: '6.0'
settings: {autoInstallPeers: true, excludeLinksFromLockfile: false}
dependencies:
  a: {specifier: '1', version: 1.0.0(b@2.0.0)}
  c: {specifier: 'npm:b', version: /b@2.0.0}
packages:
  /a@1.0.0(b@2.0.0): {resolution: {integrity: ${hash}}, peerDependencies: {b: '*'}, dependencies: {b: 2.0.0}, dev: false}
  /b@2.0.0: {resolution: {integrity: ${hash}}, cpu: [arm64], optional: true, dev: false}
`)
    expect(JSON.parse(JSON.stringify(six))).toEqual(JSON.parse(JSON.stringify(nine)))
    const base = { sha512: hex, isForBuilder: true, isOptional: false }
    expect(nine.packages).toEqual([
      { ...base, key: 'a@1.0.0', name: 'a', version: '1.0.0', dependsOn: ['b@2.0.0'] },
      { ...base, key: 'b@2.0.0', name: 'b', version: '2.0.0', isOptional: true, isForBuilder: false, dependsOn: [] },
    ])
    expect(nine.direct).toEqual(['a@1.0.0', 'b@2.0.0'])
  })

  const good = `a@1.0.0: {resolution: {integrity: ${hash}}}`
  // Goal: each form that names code without a hash, or from elsewhere than a registry, is refused
  // by name.
  test.each<[what: string, text: string, message: RegExp]>([
    ['no YAML', 'a: [', /^pnpm-lock\.yaml: cannot be read; run `pnpm install --lockfile-only`/],
    ['an alias', pnpmLock(good, 'x: &a {b: c}\ny: *a\n'), /cannot be read/],
    ['version 5', 'lockfileVersion: 5.4\n', /lockfileVersion "5\.4" is neither 6\.0 nor 9\.0/],
    [
      'patches',
      pnpmLock(good, 'patchedDependencies: {a@1.0.0: {hash: a, path: b}}\n'),
      /patchedDependencies change packages/,
    ],
    [
      'a workspace',
      `lockfileVersion: '9.0'\nimporters:\n  .: {}\n  packages/a: {}\n`,
      /"packages\/a" is a member of a workspace/,
    ],
    [
      'a link',
      pnpmLock(good, '', "dependencies: {b: {specifier: '1', version: 'link:../b'}}"),
      /"b" comes from "link:\.\.\/b"/,
    ],
    [
      'git',
      pnpmLock('a@git+https://git.example/a#abc: {resolution: {type: git, repo: x, commit: abc}}'),
      /does not come from a registry; publish it/,
    ],
    [
      'a tarball',
      pnpmLock('a@https://codeload.github.com/a/a/tar.gz/abc: {resolution: {tarball: x}}'),
      /does not come from a registry/,
    ],
    [
      'another address',
      pnpmLock(`a@1.0.0: {resolution: {integrity: ${hash}, tarball: 'https://e.example/b.tgz'}}`),
      /"a@1\.0\.0" comes from "https:\/\/e\.example\/b\.tgz"/,
    ],
    ['no integrity', pnpmLock('a@1.0.0: {resolution: {}}'), /"a@1\.0\.0" has no integrity/],
    ['SHA-1', pnpmLock('a@1.0.0: {resolution: {integrity: sha1-aaaa}}'), /must be one sha512/],
  ])('%s', (_, text, message) => {
    expect(() => readPnpmLock(text)).toThrow(message)
  })
})

// Goal: node_modules is compared with the lock in both directions, and packages inside a file are
// named.
test('packages that are installed', async () => {
  const root = fs.mkdtempSync('/tmp/strongroom-installed-')
  const manifest = (name: string, version: string, more: object = {}) => JSON.stringify({ name, version, ...more })
  try {
    writeTree(root, {
      'npm/a/package.json': manifest('a', '1.0.0', { scripts: { install: 'x', postinstall: 'y', test: 'z' } }),
      'npm/a/node_modules/inner/package.json': manifest('inner', '3.0.0'),
      'npm/a/node_modules/files/x.js': '',
      'npm/.bin/a': '',
      'pnpm/.pnpm/a@1.0.0/node_modules/a/package.json': manifest('a', '1.0.0'),
      'pnpm/.pnpm/node_modules/x': '',
    })
    const lock = readPackageLock(npmLock({ 'node_modules/a': entry('a', '1.0.0') }))
    const installed = await installedByNpm(join(root, 'npm'), lock)
    const own = { place: 'a', name: 'a', version: '1.0.0', bundledIn: null, scripts: ['install', 'postinstall'] }
    const inner = { place: 'a/node_modules/inner', name: 'inner', version: '3.0.0', bundledIn: 'a', scripts: [] }
    expect(installed).toEqual([own, inner])
    const records = recordsOf(lock, installed, ({ place }) => `node_modules/${place}`, new Set(['a']))
    expect(records.map(({ name, ranScripts, from }) => [name, ranScripts, from])).toEqual([
      ['a', true, { kind: 'file', sha512: hex, bundledIn: null }],
      ['inner', false, { kind: 'file', sha512: hex, bundledIn: 'a@1.0.0' }],
    ])
    const place = '.pnpm/a@1.0.0/node_modules/a'
    expect(await installedByPnpm(join(root, 'pnpm'))).toEqual([{ ...own, place, scripts: [] }])
    const of = (list: typeof installed) => () => recordsOf(lock, list, pkg => `node_modules/${pkg.place}`, new Set())
    expect(of([])).toThrow('the install left out "node_modules/a", which the lock requires')
    expect(of([{ ...own, version: '1.0.1' }])).toThrow('node_modules/a is a 1.0.1, and the lock has a 1.0.0 there')
    expect(of([{ ...own, name: 'b' }])).toThrow('node_modules/a is b 1.0.0, and the lock has a 1.0.0 there')
    expect(of([own, { ...own, place: 'b' }])).toThrow(
      'node_modules/b is a 1.0.0, and the lock has no such package there',
    )
  } finally {
    fs.rmSync(root, { recursive: true })
  }
})

// Goal: hashes, addresses and systems as npm reads them.
test('parts of a lock', () => {
  expect(sha512Of('l', 'k', `sha1-x ${hash}?opt`)).toBe(hex)
  expect(tarballPath({ name: '@a/b', version: '1.0.0-rc.1+x' })).toBe('@a/b/-/b-1.0.0-rc.1.tgz')
  const pkg = { name: '@a/b', version: '1.0.0' }
  expect(isRegistryAddress('https://r.example/npm/@a%2fb/-/b-1.0.0.tgz', pkg)).toBe(true)
  for (const address of [
    'https://r.example/b/-/b-1.0.0.tgz',
    'ftp://r.example/@a/b/-/b-1.0.0.tgz',
    'x',
    'https://r.example/%zz',
  ])
    expect([address, isRegistryAddress(address, pkg)]).toEqual([address, false])
  expect(isForBuilder({})).toBe(true)
  expect(isForBuilder({ os: ['!win32'], cpu: 'any', libc: ['glibc'] })).toBe(true)
  for (const limits of [{ os: ['darwin', 'win32'] }, { os: ['!linux'] }, { cpu: ['arm64'] }, { libc: ['musl'] }])
    expect([limits, isForBuilder(limits)]).toEqual([limits, false])
})

// Goal: the install reads no script and no setting of the project.
test('manifests', () => {
  const manifest = {
    name: 'a',
    scripts: { install: 'x' },
    packageManager: 'pnpm@7',
    dependencies: { b: '1' },
    pnpm: { x: 1 },
  }
  expect(installManifest(manifest, undefined)).toEqual({ name: 'a', dependencies: { b: '1' } })
  expect(installManifest(manifest, { c: '2' })).toEqual({
    name: 'a',
    dependencies: { b: '1' },
    pnpm: { overrides: { c: '2' } },
  })
  expect(describePackageJson('{"name":"@a/b","version":"1.0.0"}')).toEqual({ name: 'b', version: '1.0.0' })
  expect(describePackageJson('[]')).toBeNull()
  expect(isSetIn('a=1\n legacy-peer-deps = true\n', 'legacy-peer-deps')).toBe(true)
  expect(isSetIn('# legacy-peer-deps=true\nlegacy-peer-deps=false\n', 'legacy-peer-deps')).toBe(false)
  expect(installFailure('npm ci: exit code 1', 'npm error code ERESOLVE').errorType).toBe('source_invalid')
})

describe('strongroom.build.toml', () => {
  // Goal: command and outputs are the file's.
  test('a file that is read', () => {
    expect(readBuildFile('command = ["make"]\noutputs = ["bin/a"]\n')).toEqual({
      command: ['make'],
      outputs: ['bin/a'],
      name: null,
      version: null,
    })
  })

  // Goal: a mistake is named with its field.
  test.each([
    ['x', /not TOML/],
    ['comand = ["a"]', /"comand": no field; the fields are command, outputs, name, version/],
    ['command = []\noutputs = ["a"]', /command: must be a list of words/],
    ['command = [1]\noutputs = ["a"]', /command: must be a list of words/],
    ['command = ["a"]', /outputs: must be a list of files/],
    ['command = ["a"]\noutputs = ["../a"]', /outputs: "\.\.\/a" must be a plain path/],
    ['command = ["a"]\noutputs = ["/a"]', /outputs: "\/a" must be a plain path/],
    ['command = ["a"]\noutputs = ["a"]\nname = "a/b"', /name: must be a plain name/],
  ])('%j', (text, message) => {
    expect(() => readBuildFile(text)).toThrow(message)
  })
})

// Goal: the files of a source choose its toolchain; a manifest with a lock goes before one without.
test.each<[files: readonly string[], toolchain: string]>([
  [['package.json'], 'npm'],
  [['package.json', 'package-lock.json'], 'npm'],
  [['package.json', 'pnpm-lock.yaml'], 'pnpm'],
  [['package.json', 'package-lock.json', 'pnpm-lock.yaml'], 'npm'],
  [['Cargo.toml', 'Cargo.lock', 'package.json', 'package-lock.json'], 'cargo'],
  [['Cargo.toml', 'package.json', 'package-lock.json'], 'npm'],
  [['strongroom.build.toml', 'Cargo.toml', 'Cargo.lock'], 'make'],
])('the toolchain of %j', async (files, toolchain) => {
  const root = fs.mkdtempSync('/tmp/strongroom-detect-')
  try {
    const text = 'command = ["a"]\noutputs = ["a"]\n'
    writeTree(root, Object.fromEntries(files.map(name => [name, name.endsWith('build.toml') ? text : '{}'])))
    const wish = { projectDir: null, toolchain: null, options: null, fetch: null, sourceName: 's' }
    expect((await findProject(root, wish, TOOLCHAINS)).toolchain).toBe(toolchain as never)
  } finally {
    fs.rmSync(root, { recursive: true })
  }
})

// Goal: a build without artifacts says what dist/ contained, and what to do.
test.each([
  ['npm', true, 2, 'dist/ contains only links; copy their targets instead (cp -L)'],
  ['npm', true, 0, 'dist/ has no file; let the build script write files to dist/'],
  ['pnpm', false, 0, 'pnpm pack wrote no file; let the build script write files to dist/'],
])('no artifacts: %s, dist/ %p, links %d', (manager, hasDist, links, why) => {
  const { errorType, message } = noArtifacts(manager, { hasDist, links })
  expect(`${errorType}: ${message}`).toBe(`no_artifacts: the build produced no artifact: ${why}`)
})
