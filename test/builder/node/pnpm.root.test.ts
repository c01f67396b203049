// Goal: a project of pnpm is built offline of package files with the lock's SHA-512, and the
// evidence names what was installed, whatever hooks, settings and scripts of the project say. A
// real pnpm, and a registry on loopback.

import { describe, expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import type { SourceFiles } from '../../../scripts/rigs/build/sources.ts'
import { cgroup2Root } from '../../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { buildNode, type NodeBuilt, type NodeChange } from '../../rigs/build/node-build.ts'
import {
  hexSha512,
  integrity,
  type NpmFiles,
  npmPackage,
  pnpmProject,
  sha1Integrity,
} from '../../rigs/build/npm-packages.ts'

const noNode = skipUnless(
  userInfo().uid === 0 && Bun.which('node') !== null && Bun.which('npm') !== null && cgroup2Root() !== null,
  'needs root, Node.js, npm and cgroup2',
)
const timeoutMs = 1_800_000

const base = npmPackage('base', '1.0.1', { 'index.js': 'module.exports = 41\n' })
const older = npmPackage('base', '0.9.0', { 'index.js': 'module.exports = 1\n' })
const answer = npmPackage(
  'answer',
  '1.2.0',
  { 'index.js': 'module.exports = require("base") + 1\n' },
  { dependencies: { base: '^1.0.0' } },
)
const scoped = npmPackage(
  '@acme/scoped',
  '0.1.0',
  { 'index.js': 'module.exports = require("base")\n' },
  { peerDependencies: { base: '*' } },
)
const other = npmPackage('other-system', '1.0.0', {}, { os: ['darwin'] })
const scripted = npmPackage(
  'scripted',
  '1.0.0',
  { 'index.js': 'module.exports = require("./made.js")\n' },
  { scripts: { postinstall: 'echo "module.exports = \'made\'" > made.js' } },
)
const writing = npmPackage(
  'writing',
  '1.0.0',
  {},
  { scripts: { install: 'echo "module.exports = 666" > ../../../base@1.0.1/node_modules/base/index.js' } },
)
const bundling = npmPackage(
  'bundling',
  '3.0.0',
  {
    'index.js': 'module.exports = require("inner")\n',
    'node_modules/inner/package.json': '{"name":"inner","version":"9.9.9"}',
    'node_modules/inner/index.js': 'module.exports = "inner"\n',
  },
  { dependencies: { inner: '*' }, bundleDependencies: ['inner'] },
)

const tool = (manifest: object) => ({ name: 'tool', version: '0.1.0', ...manifest })
const write = (expression: string) =>
  `node -e 'require("fs").mkdirSync("dist");require("fs").writeFileSync("dist/out.txt", String(${expression}))'`
const withScript = (script: string, manifest: object = { dependencies: { answer: '^1.0.0' } }) =>
  tool({ ...manifest, scripts: { build: script } })
const direct = (group: string, ...names: readonly [name: string, specifier: string, version: string][]) =>
  `\n    ${group}:\n${names.map(([name, specifier, version]) => `      '${name}':\n        specifier: ${specifier}\n        version: ${version}\n`).join('')}`
const entry = (pkg: NpmFiles, more = '') =>
  `  '${pkg.name}@${pkg.version}':\n    resolution: {integrity: ${integrity(pkg)}}\n${more}\n`
const snapshot = (pkg: NpmFiles, more = ' {}\n') => `  '${pkg.name}@${pkg.version}':${more}\n`
const needsBase = '\n    dependencies:\n      base: 1.0.1\n'

const lock = {
  importers: direct('dependencies', ['answer', '^1.0.0', '1.2.0']),
  packages: entry(answer) + entry(base),
  snapshots: snapshot(answer, needsBase) + snapshot(base),
}
const plain = pnpmProject(withScript(write('require("answer")')), lock)
/** The same as pnpm 8 writes it. */
const old: SourceFiles = {
  ...plain,
  'pnpm-lock.yaml': `lockfileVersion: '6.0'

settings:
  autoInstallPeers: true
  excludeLinksFromLockfile: false

dependencies:
  answer:
    specifier: ^1.0.0
    version: 1.2.0
  renamed:
    specifier: npm:@acme/scoped@*
    version: /@acme/scoped@0.1.0(base@0.9.0)
  base:
    specifier: 0.9.0
    version: 0.9.0

packages:

  /@acme/scoped@0.1.0(base@0.9.0):
    resolution: {integrity: ${integrity(scoped)}}
    peerDependencies:
      base: '*'
    dependencies:
      base: 0.9.0
    dev: false

  /answer@1.2.0:
    resolution: {integrity: ${integrity(answer)}}
    dependencies:
      base: 1.0.1
    dev: false

  /base@0.9.0:
    resolution: {integrity: ${integrity(older)}}
    dev: false

  /base@1.0.1:
    resolution: {integrity: ${integrity(base)}}
    dev: false
`,
  'package.json': JSON.stringify(
    withScript(write('[require("answer"), require("renamed")]'), {
      dependencies: { answer: '^1.0.0', renamed: 'npm:@acme/scoped@*', base: '0.9.0' },
    }),
  ),
}

const own = 'pkg:npm/tool@0.1.0?download_url=file:.'
const file = (pkg: NpmFiles) => `pkg:npm/${pkg.name}@${pkg.version}?checksum=sha512:${hexSha512(pkg)}`
const served = [base, answer]
const run = ['pnpm', 'run', 'build']
const pack = ['pnpm', 'pack', '--pack-destination', '/build/target']
const withScripted = (pkg: NpmFiles, manifest: object, script: string) =>
  pnpmProject(withScript(script, { dependencies: { [pkg.name]: '1', base: '1' }, ...manifest }), {
    importers: direct('dependencies', [pkg.name, "'1'", pkg.version], ['base', "'1'", '1.0.1']),
    packages: entry(pkg) + entry(base),
    snapshots: snapshot(pkg) + snapshot(base),
  })

type Row = readonly [what: string, files: SourceFiles, change: NodeChange, expected: NodeBuilt | RegExp]

const GOOD: Row[] = [
  [
    'two packages, and dist/',
    plain,
    { served },
    { packages: [own, file(answer), file(base)], artifacts: { 'out.txt': '42' }, command: run },
  ],
  [
    'a lock of version 6, with an alias, a peer and two versions of one package',
    old,
    { served: [...served, scoped, older] },
    {
      packages: [own, file(scoped), file(answer), file(older), file(base)],
      artifacts: { 'out.txt': '42,1' },
      command: run,
    },
  ],
  [
    'a development dependency, without a build script: the package',
    {
      ...pnpmProject(tool({ devDependencies: { answer: '^1.0.0' } }), {
        ...lock,
        importers: direct('devDependencies', ['answer', '^1.0.0', '1.2.0']),
      }),
      'index.js': '',
    },
    { served },
    { packages: [own, file(answer), file(base)], artifacts: { 'tool-0.1.0.tgz': 'package' }, command: pack },
  ],
  [
    'an optional package of another system, which no registry has',
    pnpmProject(
      withScript(write('require("base")'), {
        dependencies: { base: '1' },
        optionalDependencies: { 'other-system': '1' },
      }),
      {
        importers:
          direct('dependencies', ['base', "'1'", '1.0.1']) +
          direct('optionalDependencies', ['other-system', "'1'", '1.0.0']).slice(1),
        packages: entry(base) + entry(other, '    os: [darwin]\n'),
        snapshots: snapshot(base) + snapshot(other, '\n    optional: true\n'),
      },
    ),
    { served: [base] },
    { packages: [own, file(base)], artifacts: { 'out.txt': '41' }, command: run },
  ],
  [
    'an install script that the project allows',
    withScripted(scripted, { pnpm: { onlyBuiltDependencies: ['scripted'] } }, write('require("scripted")')),
    { served: [scripted, base] },
    { packages: [own, file(base), `${file(scripted)} !`], artifacts: { 'out.txt': 'made' }, command: run },
  ],
  [
    'an install script that the project does not allow',
    withScripted(scripted, {}, write('require("base")')),
    { served: [scripted, base] },
    { packages: [own, file(base), file(scripted)], artifacts: { 'out.txt': '41' }, command: run },
  ],
  [
    'a package inside the file of another one',
    pnpmProject(withScript(write('require("bundling")'), { dependencies: { bundling: '3' } }), {
      importers: direct('dependencies', ['bundling', "'3'", '3.0.0']),
      packages: entry(bundling, '    bundledDependencies:\n      - inner\n'),
      snapshots: snapshot(bundling),
    }),
    { served: [bundling] },
    {
      packages: [own, file(bundling), 'pkg:npm/inner@9.9.9?bundled_in=bundling@3.0.0'],
      artifacts: { 'out.txt': 'inner' },
      command: run,
    },
  ],
  [
    'hooks, settings, overrides and another version of pnpm',
    {
      ...pnpmProject(
        tool({
          dependencies: { answer: '^1.0.0' },
          packageManager: 'pnpm@7.0.0',
          pnpm: { overrides: { base: '1.0.1' }, packageExtensions: { answer: { dependencies: { evil: '*' } } } },
          scripts: { preinstall: 'exit 1', build: write('require("answer")') },
        }),
        { ...lock, more: 'overrides:\n  base: 1.0.1\n\npnpmfileChecksum: abc\n\npackageExtensionsChecksum: def\n' },
      ),
      '.npmrc': 'registry=https://evil.example/\nnode-linker=hoisted\nstore-dir=/build/source/store\n',
      '.pnpmfile.cjs': 'throw new Error("hook")\n',
      'pnpm-workspace.yaml': 'overrides:\n  base: npm:evil@1\n',
    },
    { served },
    { packages: [own, file(answer), file(base)], artifacts: { 'out.txt': '42' }, command: run },
  ],
  [
    'no package at all, and nothing fetched',
    pnpmProject(withScript(write('1 + 1'), {}), {}),
    { fetch: null, options: null },
    { packages: [own], artifacts: { 'out.txt': '2' }, command: run },
  ],
]

const changed = (from: string, to: string, files = plain) => ({
  ...files,
  'pnpm-lock.yaml': (files['pnpm-lock.yaml'] ?? '').replace(from, to),
})

const BAD: Row[] = [
  [
    'an install script that rewrites another package',
    withScripted(writing, { pnpm: { onlyBuiltDependencies: ['writing'] } }, 'true'),
    { served: [writing, base] },
    /^build_failed: install scripts of writing: exit code \d+; .*Read-only file system/s,
  ],
  [
    'a build script that rewrites a package',
    pnpmProject(withScript('echo 1 > node_modules/answer/index.js'), lock),
    { served },
    /^build_failed: pnpm run build: exit code \d+: .*Read-only file system/s,
  ],
  [
    'a lock that differs from package.json',
    { ...plain, 'package.json': JSON.stringify(withScript('true', { dependencies: { answer: '^2.0.0' } })) },
    { served },
    /^source_invalid: pnpm-lock\.yaml does not match package\.json; run `pnpm install --lockfile-only`/,
  ],
  [
    'a registry that serves something else',
    plain,
    { served: [answer, { ...base, bytes: answer.bytes }] },
    /^checksum_mismatch: fetched base 1\.0\.1: its SHA-512 differs from the one in the lock for "base@1\.0\.1"/,
  ],
  [
    'a file whose manifest has another name',
    changed(integrity(base), integrity(scoped)),
    { served: [answer, { ...base, bytes: scoped.bytes }] },
    /^build_failed: .*(?:@acme\/scoped|UNEXPECTED_PKG_CONTENT)/s,
  ],
  [
    'patches',
    pnpmProject(withScript('true'), {
      ...lock,
      more: 'patchedDependencies:\n  base@1.0.1:\n    hash: abc\n    path: base.patch\n',
    }),
    { served },
    /^source_invalid: pnpm-lock\.yaml: patchedDependencies change packages/,
  ],
  [
    'only SHA-1',
    changed(integrity(base), sha1Integrity(base)),
    { served },
    /^source_invalid: pnpm-lock\.yaml: the integrity of "base@1\.0\.1" is "sha1-/,
  ],
]

describe.skipIf(noNode)('projects of pnpm', () => {
  // Goal: what was installed was fetched by its hash, and the evidence has exactly that.
  test.each(GOOD)(
    'builds: %s',
    async (_, files, change, expected) => {
      expect(await buildNode('pnpm', files, change)).toEqual(expected as NodeBuilt)
    },
    timeoutMs,
  )

  // Goal: a project that would falsify the list, or cannot be built, ends in a message with its
  // cause and remedy.
  test.each(BAD)(
    'fails: %s',
    async (_, files, change, expected) => {
      expect(await buildNode('pnpm', files, change)).toMatch(expected as RegExp)
    },
    timeoutMs,
  )
})
