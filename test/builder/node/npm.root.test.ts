// Goal: a project of npm is built offline of package files with the lock's SHA-512, and the
// evidence names what was installed, whatever the project's manifest, settings and scripts say. A
// real npm, and a registry on loopback.

import { describe, expect, test } from 'bun:test'
import { userInfo } from 'node:os'
import { gzipSync } from 'node:zlib'
import { tarOf } from '../../../scripts/rigs/archive-bytes.ts'
import type { SourceFiles } from '../../../scripts/rigs/build/sources.ts'
import { cgroup2Root } from '../../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { buildNode, type NodeBuilt, type NodeChange } from '../../rigs/build/node-build.ts'
import {
  hexSha512,
  integrity,
  lockEntry,
  npmPackage,
  npmProject,
  sha1Integrity,
} from '../../rigs/build/npm-packages.ts'

const noNode = skipUnless(
  userInfo().uid === 0 && Bun.which('node') !== null && Bun.which('npm') !== null && cgroup2Root() !== null,
  'needs root, Node.js, npm and cgroup2',
)
const timeoutMs = 1_800_000

const base = npmPackage('base', '1.0.1', { 'index.js': 'module.exports = 41\n' })
const answer = npmPackage(
  'answer',
  '1.2.0',
  { 'index.js': 'module.exports = require("base") + 1\n', 'cli.js': '#!/usr/bin/env node\nconsole.log("cli")\n' },
  { dependencies: { base: '^1.0.0' }, bin: { answer: 'cli.js' } },
)
const scoped = npmPackage('@acme/Scoped', '0.1.0-rc.1', { 'index.js': 'module.exports = 1\n' })
const other = npmPackage('other-system', '1.0.0', {}, { os: ['darwin'] })
const native = npmPackage('native', '2.0.0', { 'index.js': 'module.exports = 2\n' }, { os: ['linux'], cpu: ['x64'] })
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
const scripted = npmPackage(
  'scripted',
  '1.0.0',
  { 'index.js': 'module.exports = require("./made.js")\n' },
  { scripts: { postinstall: 'echo "module.exports = \'made\'" > made.js' } },
)
const writing = (command: string) =>
  npmPackage('writing', '1.0.0', { 'index.js': '' }, { scripts: { postinstall: command } })
/** Another package, whose own manifest has the name of `base`. */
const forged = npmPackage('base', '6.6.6', { 'index.js': 'module.exports = "evil"\n' })

const lockedAnswer = lockEntry(answer, { dependencies: { base: '^1.0.0' }, bin: { answer: 'cli.js' } })
const build = (code: string) => `node -e 'require("fs").mkdirSync("dist");${code}'`
const write = (expression: string) => build(`require("fs").writeFileSync("dist/out.txt", String(${expression}))`)
const tool = (manifest: object) => ({ name: 'tool', version: '0.1.0', ...manifest })
const withScript = (script: string, manifest: object = { dependencies: { answer: '^1.0.0' } }) =>
  tool({ ...manifest, scripts: { build: script } })
const plain = npmProject(withScript(write('require("answer")')), { answer: lockedAnswer, base: lockEntry(base) })

const own = 'pkg:npm/tool@0.1.0?download_url=file:.'
const file = (pkg: typeof base) => `pkg:npm/${pkg.name}@${pkg.version}?checksum=sha512:${hexSha512(pkg)}`
const served = [base, answer]
const run = ['npm', 'run', 'build']
const pack = ['npm', 'pack', '--pack-destination', '/build/target']

type Row = readonly [what: string, files: SourceFiles, change: NodeChange, expected: NodeBuilt | RegExp]

const GOOD: Row[] = [
  [
    'two packages, and dist/',
    plain,
    { served },
    { packages: [own, file(answer), file(base)], artifacts: { 'out.txt': '42' }, command: run },
  ],
  [
    'a lock of version 2, in a directory, without a build script: the package',
    Object.fromEntries(
      Object.entries({
        ...npmProject(
          tool({ devDependencies: { answer: '1.2.0' } }),
          { answer: { ...lockedAnswer, dev: true }, base: lockEntry(base, { dev: true }) },
          { lockfileVersion: 2 },
        ),
        'index.js': '',
      }).map(([name, text]) => [`sub/${name}`, text]),
    ),
    { served, projectDir: 'sub' },
    {
      packages: [own.replace('file:.', 'file:sub'), file(answer), file(base)],
      artifacts: { 'tool-0.1.0.tgz': 'package' },
      command: pack,
    },
  ],
  [
    'a scope, an alias, and two versions of one package',
    npmProject(
      withScript(write('[require("@acme/Scoped"), require("renamed"), require("base")]'), {
        dependencies: { '@acme/Scoped': '*', renamed: 'npm:answer@^1.0.0', base: '6.6.6' },
      }),
      {
        '@acme/Scoped': lockEntry(scoped),
        renamed: { ...lockedAnswer, name: 'answer' },
        base: lockEntry(forged),
        'renamed/node_modules/base': lockEntry(base),
      },
    ),
    { served: [...served, scoped, forged] },
    {
      packages: [own, file(scoped), file(answer), file(base), file(forged)],
      artifacts: { 'out.txt': '1,42,evil' },
      command: run,
    },
  ],
  [
    'an optional package of another system, which no registry has',
    npmProject(withScript(write('require("native")'), { optionalDependencies: { native: '2', 'other-system': '1' } }), {
      native: lockEntry(native, { optional: true, os: ['linux'], cpu: ['x64'] }),
      'other-system': lockEntry(other, { optional: true, os: ['darwin'] }),
    }),
    { served: [native] },
    { packages: [own, file(native)], artifacts: { 'out.txt': '2' }, command: run },
  ],
  [
    'a package inside the file of another one',
    npmProject(withScript(write('require("bundling")'), { dependencies: { bundling: '3' } }), {
      bundling: lockEntry(bundling, { dependencies: { inner: '*' }, bundleDependencies: ['inner'] }),
      'bundling/node_modules/inner': { version: '9.9.9', inBundle: true },
    }),
    { served: [bundling] },
    {
      packages: [own, file(bundling), 'pkg:npm/inner@9.9.9?bundled_in=bundling@3.0.0'],
      artifacts: { 'out.txt': 'inner' },
      command: run,
    },
  ],
  [
    'an install script that writes into its own package',
    npmProject(withScript(write('require("scripted")'), { dependencies: { scripted: '1' } }), {
      scripted: lockEntry(scripted, { hasInstallScript: true }),
    }),
    { served: [scripted] },
    { packages: [own, `${file(scripted)} !`], artifacts: { 'out.txt': 'made' }, command: run },
  ],
  [
    'no package at all, and nothing fetched',
    npmProject(
      tool({
        scripts: { build: build('require("fs").mkdirSync("dist/a");require("fs").writeFileSync("dist/a/b", "c")') },
      }),
      {},
    ),
    { fetch: null, options: null },
    { packages: [own], artifacts: { 'a/b': 'c' }, command: run },
  ],
  [
    'settings and scripts of the project that an install would take, and caches of build tools',
    {
      ...npmProject(
        tool({
          dependencies: { answer: '^1.0.0' },
          pnpm: { overrides: { base: 'npm:evil' } },
          scripts: {
            preinstall: 'exit 1',
            build: `mkdir -p node_modules/.cache/x && ${write('require("answer")')}`,
          },
        }),
        { answer: lockedAnswer, base: lockEntry(base) },
      ),
      '.npmrc':
        'registry=https://evil.example/\nignore-scripts=false\noffline=false\ninstall-strategy=linked\nnode-options=--require ./own.js\n',
      'own.js': '',
      '.pnpmfile.cjs': 'throw new Error("hook")\n',
      'npm-shrinkwrap.json': '{}',
    },
    { served },
    { packages: [own, file(answer), file(base)], artifacts: { 'out.txt': '42' }, command: run },
  ],
]

const swapped = (from: string, to: string, files = plain) => ({
  ...files,
  'package-lock.json': (files['package-lock.json'] ?? '').replaceAll(from, to),
})

const BAD: Row[] = [
  [
    'an install script that rewrites another package',
    npmProject(withScript(write('require("base")'), { dependencies: { base: '1', writing: '1' } }), {
      base: lockEntry(base),
      writing: lockEntry(writing('echo "module.exports = 666" > ../base/index.js'), { hasInstallScript: true }),
    }),
    { served: [base, writing('echo "module.exports = 666" > ../base/index.js')] },
    /^build_failed: install scripts of writing: exit code \d+; .*Read-only file system/s,
  ],
  [
    'a build script that rewrites a package',
    npmProject(
      withScript('echo "module.exports = 666" > node_modules/base/index.js', { dependencies: { base: '1' } }),
      {
        base: lockEntry(base),
      },
    ),
    { served: [base] },
    /^build_failed: npm run build: exit code \d+: .*Read-only file system/s,
  ],
  [
    'a build script that leaves dist/ empty',
    npmProject(tool({ scripts: { build: 'mkdir dist' } }), {}),
    { fetch: null, options: null },
    /^no_artifacts: the build produced no artifact: dist\/ has no file; let the build script write files to dist\//,
  ],
  [
    'a build script that fills dist/ with links',
    npmProject(tool({ scripts: { build: 'mkdir dist && ln -s ../package.json dist/a' } }), {}),
    { fetch: null, options: null },
    /^no_artifacts: the build produced no artifact: dist\/ contains only links; copy their targets instead/,
  ],
  [
    'a lock that differs from package.json',
    npmProject(
      withScript('true', { dependencies: { answer: '^2.0.0' } }),
      { answer: lockedAnswer, base: lockEntry(base) },
      {
        root: tool({ dependencies: { answer: '^1.0.0' } }),
      },
    ),
    { served },
    /^source_invalid: package-lock\.json does not match package\.json; run `npm install --package-lock-only`/,
  ],
  [
    'overrides that the lock does not have',
    npmProject(withScript('true', { dependencies: { answer: '^1.0.0' }, overrides: { base: '6.6.6' } }), {
      answer: lockedAnswer,
      base: lockEntry(base),
    }),
    { served: [...served, forged] },
    /^source_invalid: package-lock\.json does not match package\.json/,
  ],
  [
    "a registry's file under the name of another package",
    swapped('/answer/-/answer-1.2.0.tgz', '/evil/-/evil-1.2.0.tgz'),
    { served },
    /^source_invalid: package-lock\.json: "node_modules\/answer" comes from "https:\/\/registry\.example\/evil/,
  ],
  [
    'a file whose manifest has another version',
    npmProject(withScript('true', { dependencies: { base: '1' } }), {
      base: lockEntry({ ...base, bytes: forged.bytes }),
    }),
    { served: [{ ...base, bytes: forged.bytes }] },
    /^build_failed: node_modules\/base is base 6\.6\.6, and the lock has base 1\.0\.1 there; lock again/,
  ],
  [
    'a registry that serves something else',
    plain,
    { served: [answer, { ...base, bytes: forged.bytes }] },
    /^checksum_mismatch: fetched base 1\.0\.1: its SHA-512 differs from the one in the lock for "node_modules\/base"/,
  ],
  [
    'a package that the registry lacks',
    plain,
    { served: [answer] },
    /^source_unreachable: a package file cannot be fetched from https:\/\/crates\.strongroom\.test\/npm; .*base-1\.0\.1\.tgz: HTTP 404/s,
  ],
  [
    'a registry that the operator does not allow',
    plain,
    { served, options: { npm: { registry: 'https://refused.strongroom.test/npm' } } },
    /^source_unreachable: .*ask the operator which hosts are allowed: .*Forbidden/s,
  ],
  [
    'a service that fetches nothing',
    plain,
    { fetch: null },
    /^source_unreachable: package-lock\.json names 2 packages, and this service fetches nothing/,
  ],
  [
    'no registry',
    plain,
    { options: null },
    /^source_unreachable: package-lock\.json names 2 packages, and the request names no registry; name one by npm_registry/,
  ],
  [
    'packages in the source',
    { ...plain, 'node_modules/base/index.js': '' },
    { served },
    /^source_invalid: node_modules: the builder installs it from package-lock\.json; leave it out of the source/,
  ],
  [
    'a lock of yarn',
    { 'package.json': '{"name":"tool"}', 'yarn.lock': '' },
    { options: null },
    /^lock_missing: source: yarn\.lock is a lock that this service does not read; run `npm install --package-lock-only`/,
  ],
  [
    'a lock of bun',
    { 'package.json': '{"name":"tool"}', 'bun.lock': '' },
    { options: null },
    /^lock_missing: source: bun\.lock is a lock that this service does not read/,
  ],
  [
    'only SHA-1',
    swapped(integrity(base), sha1Integrity(base)),
    { served },
    /^source_invalid: package-lock\.json: the integrity of "node_modules\/base" is "sha1-/,
  ],
  [
    'a lock that is a link',
    plain,
    {
      served,
      archive: gzipSync(
        tarOf([
          { name: 'package.json', content: plain['package.json'] ?? '' },
          { name: 'other.json', content: plain['package-lock.json'] ?? '' },
          { name: 'package-lock.json', type: '2', link: 'other.json' },
        ]),
      ),
    },
    /^lock_missing: source: package\.json without package-lock\.json/,
  ],
]

describe.skipIf(noNode)('projects of npm', () => {
  // Goal: what was installed was fetched by its hash, and the evidence has exactly that.
  test.each(GOOD)(
    'builds: %s',
    async (_, files, change, expected) => {
      expect(await buildNode('npm', files, change)).toEqual(expected as NodeBuilt)
    },
    timeoutMs,
  )

  // Goal: a project that would falsify the list, or cannot be built, ends in a message with its
  // cause and remedy.
  test.each(BAD)(
    'fails: %s',
    async (_, files, change, expected) => {
      expect(await buildNode('npm', files, change)).toMatch(expected as RegExp)
    },
    timeoutMs,
  )

  // Goal: two builds of one source give one package.
  test(
    'reproduces the package',
    async () => {
      const files = { ...npmProject(tool({ dependencies: { base: '1' } }), { base: lockEntry(base) }), 'index.js': '' }
      expect(await buildNode('npm', files, { served: [base], reproduce: true })).toMatchObject({ command: pack })
    },
    timeoutMs,
  )
})
