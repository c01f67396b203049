// Goal: a kept result counts only for the very same inputs. A change of each kind of input makes the file run again.

import { afterEach, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { KeptResults, type TestKind } from '../../../scripts/lib/results/kept-results.ts'
import { readsOf } from '../../../scripts/lib/results/reads.ts'
import { codeOf, readTree } from '../../../scripts/lib/results/tree.ts'

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
/** Lists folders of the repository. */
const listing = 'test/listing.slow.test.ts'
/** Starts a program of the repository, which embeds a text. */
const spawning = 'test/spawning.slow.test.ts'
const files: Files = {
  'package.json': '{}',
  'bun.lock': 'lock 1',
  [alone]: "import { a } from './rigs/rig.ts'\nimport data from './vectors/data.json'\n",
  [spawning]: "Bun.spawn([process.execPath, 'src/main.ts'])\n",
  [listing]: "const root = join(import.meta.dir, '..')\nreaddirSync(root, { recursive: true })\n",
  'test/other.slow.test.ts': '',
  'test/rigs/rig.ts': "export { a } from '../../src/a.ts'\n",
  'test/vectors/data.json': '1',
  'test/vectors/unread.bin': '1',
  'src/a.ts': "new Worker(new URL('./a.worker.ts', import.meta.url))\nconst later = () => import('./later.ts')\n",
  'src/a.worker.ts': '',
  'src/later.ts': '',
  'src/main.ts': "import help from './cli/help.md' with { type: 'text' }\n",
  'src/cli/help.md': '',
  'src/NOTES.md': '',
  'guest-image/packages.lock': '',
  'scripts/build.ts': '',
  'README.md': '',
}

describe('what a test can read', () => {
  // Goal: the files that it imports, or names, and what those read.
  test.each([
    [
      alone,
      [
        ...['bun.lock', 'package.json', 'src/a.ts', 'src/a.worker.ts', 'src/later.ts', alone],
        ...['test/rigs/rig.ts', 'test/vectors/data.json'],
      ],
    ],
    [spawning, ['bun.lock', 'package.json', 'src/cli/help.md', 'src/main.ts', spawning]],
    [
      listing,
      Object.keys(files).filter(
        path => !['README.md', 'src/NOTES.md', alone, spawning, 'test/other.slow.test.ts'].includes(path),
      ),
    ],
  ])('goal: it imports, starts a program, or lists folders and reads nearly everything: %s', (file, expected) => {
    const { files: found } = readsOf(readTree(treeOf(files)), file, false)
    expect([...found.keys()]).toEqual(expected.toSorted())
  })

  const readsWith = (text: string, more: Files = {}) =>
    readsOf(readTree(treeOf({ ...files, ...more, 'test/rigs/rig.ts': text })), alone, false)

  // Goal: a rig that may name any file of the repository has its test count as one that reads everything.
  test.each([
    ["readFileSync(join(import.meta.dir, '../..', name))", true],
    ["readdirSync(import.meta.dir + '/../..')", true],
    ['readFileSync(join(dirname(import.meta.path), name))', true],
    ["createRequire(import.meta.url)(['..', '..', name].join('/'))", true],
    ["const root = join(import.meta.dir, '../..')\nlist(root)", true],
    ["const root = join(import.meta.dir, '../..')\nread(join(root, name))", true],
    ["export const root = join(import.meta.dir, '../..')", true],
    ["Bun.spawn(['git', 'ls-files'])", true],
    ["Bun.spawn(['git', '-c', 'a=b', 'log'])", true],
    ["Bun.spawn(['sh', '-c', 'git ls-files'])", true],
    ['scan(process.cwd())', true],
    ['scan(process.env.PWD)', true],
    ['scan(Object.values(process.env))', true],
    ["read('../..')", true],
    ["Bun.spawn(['bash', 'scripts/run'])", true],
    ["Bun.spawn(['dist/strongroom'])", true],
    ["Bun.spawn(['git', '-C', dir, 'init'])", false],
    ["Bun.spawn(argv, { cwd: cwd ?? process.cwd(), env: { ...process.env, A: '1' } })", false],
    ['const { STRONGROOM_IMAGE_DIR } = process.env', false],
    ['Bun.spawn([process.execPath, path])', false],
    ["Bun.spawn(['openssl', 'version'])", false],
    ["const url = 'https://git.example/a.git'", false],
    ["const names = ['../x', 'src/main.rs']", false],
    ["const root = join(import.meta.dir, '../..')\nBun.spawn(argv, { cwd: root })", false],
    ['if (import.meta.main) go(process.argv.slice(2))', false],
  ])('goal: the rig %p has its test read everything: %p', (text, isAll) => {
    const reads = readsWith(text, { 'scripts/run': '#!/bin/bash\n' })
    expect(reads.because).toBe(isAll ? (text.includes('scripts/run') ? 'scripts/run' : 'test/rigs/rig.ts') : null)
    expect(reads.files.has('scripts/build.ts')).toBe(isAll)
  })

  // Goal: each way to name a file or folder counts as that, with what a named module reads in turn.
  test.each([
    ["join(import.meta.dir, '../vectors/unread.bin')", 'test/vectors/unread.bin'],
    ["join(import.meta.dir, '..', 'vectors', 'unread.bin')", 'test/vectors/unread.bin'],
    ["join(import.meta.dir, '../vectors', name)", 'test/vectors/unread.bin'],
    ['`$(import.meta.dir)/../vectors/$(name)`', 'test/vectors/unread.bin'],
    ["new URL('../vectors/unread.bin', import.meta.url)", 'test/vectors/unread.bin'],
    ["new URL('../vectors/', import.meta.url)", 'test/vectors/unread.bin'],
    ['new URL(`../vectors/$(name)`, import.meta.url)', 'test/vectors/unread.bin'],
    ["const vectors = resolve(import.meta.dir, '../vectors')\nread(vectors)", 'test/vectors/unread.bin'],
    ["export const vectors = resolve(import.meta.dir, '../vectors')", 'test/vectors/unread.bin'],
    ["const root = join(import.meta.dir, '../..')\nread(join(root, 'test/vectors', name))", 'test/vectors/unread.bin'],
    ["const root = join(import.meta.dir, '../..')\nread(`$(root)/test/vectors/unread.bin`)", 'test/vectors/unread.bin'],
    ["read('test/vectors/unread.bin')", 'test/vectors/unread.bin'],
    ["new Bun.Glob('{docs,test/vectors/**/*.bin}')", 'test/vectors/unread.bin'],
    ["join(import.meta.dir, '../../src/main.ts')", 'src/cli/help.md'],
    ["import.meta.resolve; Bun.spawn([process.execPath, 'src/main.ts'])", 'src/cli/help.md'],
    ["readFileSync('../vectors/unread.bin')", 'test/vectors/unread.bin'],
    ["new URL('../vectors/../vectors/unread.bin', elsewhere)", 'test/vectors/unread.bin'],
  ])('goal: the rig %p reads %p, where $() stands for a placeholder', (source, expected) => {
    const text = source.replace(/\$\((.*?)\)/g, '$${$1}')
    expect([...readsWith(text).files.keys()]).toContain(expected)
  })

  // Goal: a module counts as bytes where it is read as text, and as code where it runs.
  test.each([
    ["Bun.spawn([process.execPath, join(import.meta.dir, '../../src/main.ts')])", 'code'],
    ["readFileSync(join(import.meta.dir, '../../src/main.ts'))", 'bytes'],
    ["const root = join(import.meta.dir, '../..')\nreaddirSync(join(root, 'src'))", 'bytes'],
    ["Bun.spawn(['bun', 'node_modules/typescript/bin/tsc', 'src/main.ts'])", 'bytes'],
    ["Bun.spawn(['git', 'grep', 'x'])", 'bytes'],
    ["export const main = join(import.meta.dir, '../../src/main.ts')", 'code'],
    ["import './reader.ts'\nexport const main = join(import.meta.dir, '../../src/main.ts')", 'bytes'],
  ])('goal: the rig %p reads src/main.ts as %s', (text, expected) => {
    const reader = { 'test/rigs/reader.ts': "import { main } from './rig.ts'\nreadFileSync(main, 'utf8')\n" }
    expect(readsWith(text, reader).files.get('src/main.ts')).toBe(expected as 'code' | 'bytes')
  })

  test('goal: threads that the product names by their path from src, and its page, count', () => {
    const product = {
      'package.json': JSON.stringify({ imports: { '#console-page': { default: './src/page.ts' } } }),
      'src/page.ts': '',
      'src/work/thread.ts': '',
      'src/a.ts': "import '#console-page'\nbeginThread('work/thread')\n",
    }
    const { files: found } = readsOf(readTree(treeOf({ ...files, ...product })), alone, false)
    expect([...found.keys()]).toEqual(expect.arrayContaining(['src/page.ts', 'src/work/thread.ts']))
  })
})

describe('the code of a module', () => {
  const before = `import type { A } from './a.ts'
import './effect.ts'
import { unused } from './b.ts'
/** Adds. */
export function add(a: number): string { // Twice.
  return \`\${a}  // no comment
  /* nor this */\` + 'b  b'
}
`
  // Goal: what cannot run does not count.
  test.each([
    ['a comment', ['/** Adds. */', '/** Subtracts. */']],
    ['a comment at the end of a line', [' // Twice.', '']],
    ['a type', ['a: number', 'a: number | string']],
    ['an import of types', ["import type { A } from './a.ts'\n", '']],
    ['blank space', ['export function', '\n\n  export   function']],
  ] as const)('goal: %s changes nothing', (_, [from, to]) => {
    expect(before).toContain(from)
    expect(codeOf('a.ts', before.replace(from, to))).toBe(codeOf('a.ts', before))
  })

  // Goal: all that may run counts.
  test.each([
    ['a name', ['add(a', 'sum(a']],
    ['a string', ["'b  b'", "'b b'"]],
    ['blank space in a template', ['}  //', '} //']],
    ['what looks like a comment in a template', ['/* nor this */', '/* or this */']],
    ['an import for its effect', ["import './effect.ts'\n", '']],
    ['an import without a use', ["import { unused } from './b.ts'\n", '']],
    ['code without an effect', ['return', 'if (false) go()\n  return']],
    ['code after a return', ['\n}', '\n  return 1\n}']],
  ] as const)('goal: %s changes it', (_, [from, to]) => {
    expect(before).toContain(from)
    expect(codeOf('a.ts', before.replace(from, to))).not.toBe(codeOf('a.ts', before))
  })

  test('goal: text that is no module, and what Bun would evaluate, stays as it is', () => {
    for (const text of ['a ( // b', "if (process.env.NODE_ENV === 'test') go() // c", '/* @__PURE__ */ go()']) {
      expect(codeOf('a.ts', text)).toBe(text)
    }
  })
})

describe('the key', () => {
  const keyOf = (changed: Files, file: string, kind: TestKind) =>
    new KeptResults(treeOf({ ...files, ...changed }), treeOf({})).keyOf(file, kind)

  const more = (path: string) => `${files[path]}go()\n`

  // Goal: each input of a test that imports what it reads changes its key.
  test.each([
    ['the test', { [alone]: more(alone) }],
    ['a rig that it imports', { 'test/rigs/rig.ts': more('test/rigs/rig.ts') }],
    ['a module of the product', { 'src/a.ts': more('src/a.ts') }],
    ["a worker's module", { 'src/a.worker.ts': 'go()' }],
    ['a module that is imported late', { 'src/later.ts': 'go()' }],
    ['test data', { 'test/vectors/data.json': '2' }],
    ['the locked packages', { 'bun.lock': 'lock 2' }],
    ['package.json', { 'package.json': '{"name":"x"}' }],
  ])('goal: %s changes it for a self-contained test', (_, changed) => {
    expect(keyOf(changed, alone, plain)).not.toBe(keyOf({}, alone, plain))
  })

  // Goal: a program's modules and texts change the key of a test that starts it; nothing else does.
  test.each([
    ['a program', { 'src/main.ts': more('src/main.ts') }, true],
    ['a text that it embeds', { 'src/cli/help.md': 'More.' }, true],
    ['another module', { 'src/a.ts': more('src/a.ts') }, false],
    ['data', { 'test/vectors/unread.bin': '2' }, false],
  ])('goal: %s changes it for a test that starts the program: %s %p', (_, changed, isChanged) => {
    expect(keyOf(changed, spawning, plain) !== keyOf({}, spawning, plain)).toBe(isChanged)
  })

  // Goal: everything changes the key of a test that may read everything, and of one of images.
  test.each([
    ['a program', { 'src/main.ts': more('src/main.ts') }],
    ['a text of the product', { 'src/cli/help.md': 'More.' }],
    ['a lock of the image', { 'guest-image/packages.lock': 'x' }],
    ['a script', { 'scripts/build.ts': 'go()' }],
    ['data', { 'test/vectors/unread.bin': '2' }],
    ['a new file', { 'src/new.ts': '' }],
  ])('goal: %s changes it for a test that lists folders, and for one of images', (_, changed) => {
    expect(keyOf(changed, listing, plain)).not.toBe(keyOf({}, listing, plain))
    expect(keyOf(changed, alone, image)).not.toBe(keyOf({}, alone, image))
    expect(keyOf(changed, alone, plain)).toBe(keyOf({}, alone, plain))
  })

  test('goal: a comment changes it for a test that lists folders alone', () => {
    const changed = { 'src/main.ts': `// More.\n${files['src/main.ts']}`, 'src/a.ts': `// More.\n${files['src/a.ts']}` }
    expect(keyOf(changed, listing, plain)).not.toBe(keyOf({}, listing, plain))
    for (const file of [alone, spawning]) expect(keyOf(changed, file, plain)).toBe(keyOf({}, file, plain))
    expect(keyOf(changed, alone, image)).toBe(keyOf({}, alone, image))
  })

  test('goal: another test and a text for people change no key', () => {
    const before = new KeptResults(treeOf(files), treeOf({}))
    for (const changed of [
      { 'test/other.slow.test.ts': 'go()' },
      { 'README.md': 'More.' },
      { 'src/NOTES.md': 'More.' },
    ]) {
      const changedTree = new KeptResults(treeOf({ ...files, ...changed }), treeOf({}))
      for (const file of [alone, spawning, listing]) {
        for (const kind of [plain, image]) expect(changedTree.keyOf(file, kind)).toBe(before.keyOf(file, kind))
      }
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
