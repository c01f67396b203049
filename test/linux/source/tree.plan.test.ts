// Goal: no archive writes a name twice, a name that leaves the tree, or a link out of it.

import { expect, test } from 'bun:test'
import { isMacFile, linkTargetProblem, readName, showName, TreePlan } from '../../../src/linux/source/tree.plan.ts'

const kindOf = (name: string | Uint8Array) => {
  const read = readName(typeof name === 'string' ? new TextEncoder().encode(name) : name)
  if (read.kind === 'path') return `${read.isDirectory ? 'dir' : 'file'} ${read.components.join('|')}`
  return read.kind === 'refused' ? `refused ${read.problem.replace(/^"[^"]*": /, '')}` : read.kind
}
const planOf = (entriesMax = 100) => {
  const plan = new TreePlan(entriesMax)
  return { plan, file: (path: string) => plan.addFile(path.split('/')) }
}

test('goal: names that differ in case or composition are two files, as for git and Linux', () => {
  const pairs = [
    ['README', 'readme'],
    ['caf\u00e9', 'cafe\u0301'],
    ['\u212b', '\u00e5'],
    ['\ufb01le', 'file'],
    ['a\u00b2', 'a2'],
    ['\uff21', 'a'],
  ] as const
  for (const [name, other] of pairs) {
    const { file } = planOf()
    const names = [name, other, `d/${name}`, `d/${other}`, `e/${name}/x`, `e/${other}/x`]
    expect(names.map(file)).toEqual([null, null, null, null, null, null])
    expect(file(other)).toContain('stands twice')
  }
})

test("goal: macOS's own files are known by their names", () => {
  const isMac = (path: string) => isMacFile(path.split('/'))
  expect(['.DS_Store', 'a/.DS_Store', '._a', 'a/._Cargo.toml'].map(isMac)).toEqual([true, true, true, true])
  expect(['._', 'a._b', '.DS_Store/a', '._d/a', 'DS_Store', '.ds_store'].map(isMac)).toEqual(Array(6).fill(false))
  expect(['__MACOSX/a/._b', '__MACOSX/', './__MACOSX/x', 'a/__MACOSX/b'].map(kindOf)).toEqual([
    'finder',
    'finder',
    'finder',
    'file a|__MACOSX|b',
  ])
})

test('goal: a name stands once, and nothing is below a file', () => {
  const { plan, file } = planOf()
  expect(file('a/b')).toBeNull()
  expect(file('a/b')).toContain('stands twice')
  expect(file('a/b/c')).toContain('below "a/b", which is no directory')
  expect(plan.addDirectory(['a'])).toBeNull()
  expect(plan.addDirectory(['a'])).toContain('stands twice')
  expect(plan.addLink(['a'], 'x')).toContain('stands twice')
  expect(plan.fileCount()).toBe(1)
})

test('goal: as many files and directories as may be, and not one more', () => {
  const { plan, file } = planOf(3)
  expect([file('a/b/c'), file('a/b/d'), plan.addDirectory(['a'])]).toEqual([
    null,
    'more than 3 files and directories',
    null,
  ])
})

test('goal: what a name may be', () => {
  expect(kindOf('a/b')).toBe('file a|b')
  expect(kindOf('././a/')).toBe('dir a')
  expect(['.', './', './.'].map(kindOf)).toEqual(['root', 'root', 'root'])
  expect(['.git/config', 'a/.GIT', 'git~1', 'a/.g\u200cit/x'].map(kindOf)).toEqual(Array(4).fill('git'))
  // Any name below a .git; but one that leaves the tree is refused first.
  const odd = ['.git/a\n', `.git/${'x'.repeat(300)}`, `.git/${'x/'.repeat(900)}y`, './.git//a', '.git/C:/a']
  expect(odd.map(kindOf)).toEqual(Array(5).fill('git'))
  expect(kindOf(Buffer.concat([Buffer.from('.git/refs/'), Buffer.from([0xff])]))).toBe('git')
  expect(['.git/../a', '/.git/a'].map(kindOf)).toEqual(['refused a path with ..', 'refused an absolute path'])
  expect(kindOf('.gitignore')).toBe('file .gitignore')
  expect(kindOf('')).toBe('refused an entry without a name')
  expect(kindOf(new Uint8Array([0xff]))).toBe('refused a name that is not UTF-8')
  for (const name of ['a\n', 'a\u202e', 'a\u2066', 'a\u2028', '\x7f'])
    expect([name, kindOf(name)]).toEqual([name, 'refused a control character in a name'])
  expect(['a\\b', '\\', 'C\\a', 'a\\..\\b/c'].map(kindOf)).toEqual([
    'file a\\b',
    'file \\',
    'file C\\a',
    'file a\\..\\b|c',
  ])
  for (const name of ['/a', 'C:/a', 'z:']) expect([name, kindOf(name)]).toEqual([name, 'refused an absolute path'])
  for (const name of ['..', 'a/..', '../a']) expect([name, kindOf(name)]).toEqual([name, 'refused a path with ..'])
  for (const name of ['a//b', 'a/./b']) expect(kindOf(name)).toContain('an empty component')
})

test('goal: the longest name, component and depth, and one more', () => {
  const component = (bytes: number) => 'x'.repeat(bytes)
  expect(kindOf(component(255))).toStartWith('file')
  expect(kindOf(component(256))).toContain('a component of more than 255 bytes')
  expect(kindOf('\u00e9'.repeat(128))).toContain('a component of more than 255 bytes')
  expect(kindOf(Array(64).fill('a').join('/'))).toStartWith('file')
  expect(kindOf(Array(65).fill('a').join('/'))).toContain('deeper than 64 directories')
  const long = Array(4).fill(component(255)).join('/')
  expect([long.length, kindOf(`${long}/`)]).toEqual([1023, expect.stringMatching(/^dir/)])
  expect(kindOf(`${long}/a`)).toBe('refused a name of more than 1024 bytes')
  expect(showName('x'.repeat(121))).toBe(`"${'x'.repeat(120)}…"`)
  expect(showName('x'.repeat(120))).toBe(`"${'x'.repeat(120)}"`)
})

test('goal: a link leads nowhere outside, by itself or by other links', () => {
  const outside = (links: readonly (readonly [string, string])[]) => {
    const { plan } = planOf()
    for (const [path, target] of links) expect(plan.addLink(path.split('/'), target)).toBeNull()
    return plan.linkProblem()
  }
  expect(outside([['a', 'b']])).toBeNull()
  expect(outside([['a/b', '../c']])).toBeNull()
  expect(outside([['a/b', '../../c']])).toContain('"a/b": a link that leads out')
  expect(outside([['a', './b/../../c']])).toContain('leads out')
  expect(
    outside([
      ['d/up', '..'],
      ['d/e', 'up/../x'],
    ]),
  ).toContain('"d/e": a link that leads out')
  expect(
    outside([
      ['a', 'b'],
      ['b', 'a'],
    ]),
  ).toBeNull()
})

test('goal: what a target may be', () => {
  expect(linkTargetProblem('a/../b')).toBeNull()
  expect(linkTargetProblem('x'.repeat(1024))).toBeNull()
  expect(linkTargetProblem('')).toBe('a link without a target')
  expect(linkTargetProblem('/etc')).toBe('a link to an absolute path')
  expect(linkTargetProblem('a\n')).toBe("a control character in a link's target")
  expect(linkTargetProblem('x'.repeat(1025))).toBe("a link's target of more than 1024 bytes")
})
