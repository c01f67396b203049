import { describe, expect, test } from 'bun:test'
import { dirname } from 'node:path'
import { FAULTS } from '../../src/base/fault.ts'
import { codeFaults, goalFaults, textFaults, unusedCodes } from './hygiene.ts'
import { readTree, root } from './tree.ts'

const texts = readTree(
  '{src,scripts,test,examples,guest-image,packaging,docs,.ci}/**/*.{ts,js,sh,bash,awk,md,json,toml,sql,html,css,txt,service,conf}',
  '{scripts,guest-image,.ci}/**/{setup,test,demo,run,init}',
  '*.{md,json,toml,lock}',
)
const code = readTree('{src,scripts,test,examples}/**/*.{ts,tsx}')
const tests = readTree('test/**/*.test.ts')

/** Where this clone is, and what lies beside it; too general a parent would match what belongs in the files. */
const parent = dirname(root)
const ownPaths = [root, ...(['/', '/tmp', '/root', '/opt', '/srv', '/var/tmp'].includes(parent) ? [] : [`${parent}/`])]

describe('the files', () => {
  // Goal: the project can be built anywhere: no package host, no path of one machine; and nothing is left unfinished.
  test('texts', () => expect(textFaults(texts, ownPaths)).toEqual([]))

  // Goal: types are not switched off, and no test is left out without saying why.
  test('code', () => expect(codeFaults(code)).toEqual([]))

  // Goal: the rules see what they are about.
  test('are all seen', () => {
    for (const path of ['package.json', 'bun.lock', 'scripts/setup', '.ci/run', 'src/base/fault.ts']) {
      expect(texts.has(path)).toBe(true)
    }
    expect(tests.size).toBeGreaterThan(3)
  })
})

// Goal: whoever reads a failing test knows what it protects.
test('every test says its goal', () => expect(goalFaults(tests)).toEqual([]))

// Goal: the table of faults has no dead rows.
test('every fault is used', () => {
  const tables = ['src/base/fault.ts', 'src/base/remedies.ts']
  expect(unusedCodes(Object.keys(FAULTS), readTree('src/**/*.{ts,tsx}'), tables)).toEqual([])
})

describe('a planted violation is found:', () => {
  const own = ['/srv/checkout/']

  // Goal: each rule refuses what it is there to refuse. The samples are put together so that this file passes.
  test.each([
    ['unfinished', `// ${'TO' + 'DO'}: later`],
    ['broken', `// ${'FIX' + 'ME'}`],
    ['silenced', `// @ts-${'ignore'}`],
    ['a registry', `const a = 'https://${'registry'}.somewhere.org/a'`],
    ['a mirror', `deb http://${'deb'}.somewhere.org/debian bookworm main`],
    ['a home', `const a = '/${'home'}/me/a'`],
    ['a checkout', 'cd /srv/checkout/main'],
  ])('%s', (_name, line) => {
    expect(textFaults(new Map([['a.ts', line]]), own)).toHaveLength(1)
  })

  // Goal: reserved example names and plain words are not package hosts.
  test.each([
    'https://registry.example.com/v2/',
    'packages.lock.json',
    'deb.control',
    'the mirrors of apt',
    'a.homes/x',
  ])('but not %s', line => {
    expect(textFaults(new Map([['a.ts', line]]), own)).toEqual([])
  })

  // Goal: switched-off types and tests are found in code and not in texts about them.
  test.each([
    ['const a = b as any', 1],
    ['function a(b: any) {', 1],
    ['test.only("a", () => {})', 1],
    ['describe.skip("a", () => {})', 1],
    ['test.each(rows).only("a", () => {})', 0],
    ['test.skipIf(noRoot)("a", () => {})', 1],
    ["console.log('not run: not root')\ntest.skipIf(noRoot)('a', () => {})", 0],
    ["test.skipIf(skipUnless(isRoot, 'not root'))('a', () => {})", 0],
    ['// as any, test.only', 0],
    ["const a = 'as any'", 0],
    ['const anything: anyhow = 1', 0],
  ])('%s', (text, count) => {
    expect(codeFaults(new Map([['a.test.ts', text]]))).toHaveLength(count)
  })

  // Goal: a goal counts above the test, in its first line and on the describe block around it, and nowhere else.
  test.each([
    ["// Goal: a.\ntest('a', () => {})", 0],
    ["// Goal: a long\n// one.\ntest('a', () => {})", 0],
    ["test('a', () => {\n  // Goal: a.\n})", 0],
    ["test(\n  'a',\n  () => {\n    // Goal: a.\n  },\n)", 0],
    ["test(\n  'a',\n  () => {\n    run()\n    // Goal: a.\n  },\n)", 1],
    ["test('goal: a', () => {})", 0],
    ["test('the goal: a', () => {})", 1],
    ["// Goal: a.\ndescribe('b', () => {\n  test('a', () => {})\n\n  test('c', () => {})\n})", 0],
    ["describe('b', () => {\n  // Goal: a.\n  test('a', () => {})\n\n  test('c', () => {})\n})", 1],
    ["// Goal: a.\ntest('a', () => {})\n\ntest('b', () => {})", 1],
    ["// Goal: a.\ndescribe('b', () => {\n})\ntest('a', () => {})", 1],
    ["// Goal:\ntest('a', () => {})", 1],
    ["const text = `\ntest('a')`", 1],
  ])('%j', (text, count) => {
    expect(goalFaults(new Map([['a.test.ts', text]]))).toHaveLength(count)
  })

  // Goal: a row that only its own table names is unused.
  test('an unused fault', () => {
    const table = "export const FAULTS = {\n  'a.b': { wire: 'c' },\n  d: { wire: 'c' },\n} as const\n"
    const tree = new Map([
      ['fault.ts', `${table}const fallback = 'd'\n`],
      ['remedies.ts', "export const REMEDIES = {\n  'a.b': 'e',\n  d: 'e',\n} as const\n"],
      ['x.ts', "throw new Fault('c.d', '')"],
    ])
    expect(unusedCodes(['a.b', 'd'], tree, ['fault.ts', 'remedies.ts'])).toEqual(['a.b'])
  })
})
