// Goal: a kept result counts only for the very same inputs. A change of each kind of input makes the file run again.

import { afterEach, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { KeptResults, type TestKind } from '../../../scripts/lib/results/kept-results.ts'
import { readsOf } from '../../../scripts/lib/results/reads.ts'
import { readTree } from '../../../scripts/lib/results/tree.ts'

const directories: string[] = []
afterEach(() => {
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true })
})

type Files = Readonly<Record<string, string>>

function treeOf(files: Files): string {
  const root = mkdtempSync(join(tmpdir(), 'srt-results-'))
  directories.push(root)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(join(root, dirname(path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  return root
}

const surroundings = { bun: '1.4.5', packages: 'p1', 'build the instance image': '/cache/images/instance-1' }
const plain: TestKind = { needsBuild: false, surroundings }
const image: TestKind = { needsBuild: true, surroundings }
/** Imports a rig, JSON, and through the rig a module of src, which starts a worker and imports another one later. */
const alone = 'test/alone.slow.test.ts'
/** Starts a program of the repository. */
const spawning = 'test/spawning.slow.test.ts'
const files: Files = {
  'package.json': '{}',
  'bun.lock': 'lock 1',
  [alone]: "import { a } from './rigs/rig.ts'\nimport data from './vectors/data.json'\n",
  [spawning]: "Bun.spawn([process.execPath, 'src/main.ts'])\n",
  'test/other.slow.test.ts': '',
  'test/rigs/rig.ts': "export { a } from '../../src/a.ts'\n",
  'test/vectors/data.json': '1',
  'test/vectors/unread.bin': '1',
  'src/a.ts': "new Worker(new URL('./a.worker.ts', import.meta.url))\nconst later = () => import('./later.ts')\n",
  'src/a.worker.ts': '',
  'src/later.ts': '',
  'src/main.ts': '',
  'src/cli/help.md': '',
  'src/NOTES.md': '',
  'guest-image/packages.lock': '',
  'scripts/build.ts': '',
  'README.md': '',
}

describe('what a test can read', () => {
  // Goal: the files that a self-contained test imports, or nearly all.
  test.each([
    [
      alone,
      [
        ...['bun.lock', 'package.json', 'src/a.ts', 'src/a.worker.ts', 'src/later.ts', alone],
        ...['test/rigs/rig.ts', 'test/vectors/data.json'],
      ],
    ],
    [
      spawning,
      Object.keys(files).filter(
        path => !['README.md', 'src/NOTES.md', alone, 'test/other.slow.test.ts'].includes(path),
      ),
    ],
  ])('goal: it imports, or starts programs and reads nearly everything: %s', (file, expected) => {
    expect(readsOf(readTree(treeOf(files)), file, false).files).toEqual(expected.toSorted())
  })

  // Goal: a rig that can name a file of the repository has its test count as one that reads everything.
  test.each([
    ["readFileSync(join(import.meta.dir, '../x'))", true],
    ["Bun.spawn(['bun', 'scripts/x.ts'])", true],
    ["Bun.spawn(['git', 'ls-files'])", true],
    ['process.cwd()', true],
    ['Bun.spawn([process.execPath, path])', true],
    ['const { STRONGROOM_IMAGE_DIR } = process.env', true],
    ["Bun.spawn(['openssl', 'version'])", false],
    ['if (import.meta.main) go()', false],
  ])('goal: the rig %p has its test read everything: %p', (text, isAll) => {
    const reads = readsOf(readTree(treeOf({ ...files, 'test/rigs/rig.ts': text })), alone, false)
    expect(reads.because).toBe(isAll ? 'test/rigs/rig.ts' : null)
    expect(reads.files.includes('scripts/build.ts')).toBe(isAll)
  })
})

describe('the key', () => {
  const keyOf = (changed: Files, file: string, kind: TestKind) =>
    new KeptResults(treeOf({ ...files, ...changed }), treeOf({})).keyOf(file, kind)

  // Goal: each input of a self-contained test changes its key.
  test.each([
    ['the test', { [alone]: `${files[alone]}// More.` }],
    ['a rig that it imports', { 'test/rigs/rig.ts': `${files['test/rigs/rig.ts']}// More.` }],
    ['a module of the product', { 'src/a.ts': `${files['src/a.ts']}// More.` }],
    ["a worker's module", { 'src/a.worker.ts': '// More.' }],
    ['a module that is imported late', { 'src/later.ts': '// More.' }],
    ['test data', { 'test/vectors/data.json': '2' }],
    ['the locked packages', { 'bun.lock': 'lock 2' }],
    ['package.json', { 'package.json': '{"name":"x"}' }],
  ])('goal: %s changes it for a self-contained test', (_, changed) => {
    expect(keyOf(changed, alone, plain)).not.toBe(keyOf({}, alone, plain))
  })

  // Goal: each input of the programs changes the key of a test that starts them, and of one of images.
  test.each([
    ['a program', { 'src/main.ts': '// More.' }],
    ['a text of the product', { 'src/cli/help.md': 'More.' }],
    ['a lock of the image', { 'guest-image/packages.lock': 'x' }],
    ['a script', { 'scripts/build.ts': '// More.' }],
    ['data', { 'test/vectors/unread.bin': '2' }],
    ['a new file', { 'src/new.ts': '' }],
  ])('goal: %s changes it for a test that starts programs, and for one of images', (_, changed) => {
    expect(keyOf(changed, spawning, plain)).not.toBe(keyOf({}, spawning, plain))
    expect(keyOf(changed, alone, image)).not.toBe(keyOf({}, alone, image))
    expect(keyOf(changed, alone, plain)).toBe(keyOf({}, alone, plain))
  })

  test('goal: another test and a text for people change no key', () => {
    for (const changed of [
      { 'test/other.slow.test.ts': '// More.' },
      { 'README.md': 'More.' },
      { 'src/NOTES.md': 'More.' },
    ]) {
      for (const kind of [plain, image]) expect(keyOf(changed, spawning, kind)).toBe(keyOf({}, spawning, kind))
    }
  })

  test('goal: tools, packages of Debian and images change it, and so does the choice of all cases', () => {
    const changes = [{ bun: '1.4.6' }, { packages: 'p2' }, { 'build the instance image': 'other' }, { cases: 'all' }]
    const keys = changes.map(change => keyOf({}, alone, { ...plain, surroundings: { ...surroundings, ...change } }))
    expect(new Set([...keys, keyOf({}, alone, plain)]).size).toBe(5)
  })
})

describe('kept results', () => {
  const passed = { file: alone, passed: 3, skipped: 1 }

  test('goal: a result is found by a later run in another clone of the same tree, for seven days', () => {
    const cache = treeOf({})
    const day = 24 * 3_600_000
    const nowMs = Date.now()
    new KeptResults(treeOf(files), cache, () => nowMs).keep([passed], plain)
    const later = (ms: number, changed: Files = {}) =>
      new KeptResults(treeOf({ ...files, ...changed }), cache, () => nowMs + ms).find(alone, plain)
    expect(later(6 * day)).toEqual({ ...passed, atMs: nowMs })
    expect(later(0, { 'src/a.ts': '' })).toBeNull()
    expect(later(8 * day)).toBeNull()
  })

  test('goal: nothing is kept once a file of the tree was written, even with its old bytes', () => {
    const [root, cache] = [treeOf(files), treeOf({})]
    const results = new KeptResults(root, cache)
    utimesSync(join(root, 'src/a.ts'), 1, 1)
    results.keep([passed], plain)
    expect(new KeptResults(root, cache).find(alone, plain)).toBeNull()
  })
})
