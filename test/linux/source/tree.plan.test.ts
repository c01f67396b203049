// Goal: no archive writes two names that a file system takes for one, a name that leaves the tree, or a link out of it.

import { expect, test } from 'bun:test'
import { linkTargetProblem, readName, showName, TreePlan } from '../../../src/linux/source/tree.plan.ts'

const kindOf = (name: string | Uint8Array) => {
  const read = readName(typeof name === 'string' ? new TextEncoder().encode(name) : name)
  if (read.kind === 'path') return `${read.isDirectory ? 'dir' : 'file'} ${read.components.join('|')}`
  return read.kind === 'refused' ? `refused ${read.problem.replace(/^"[^"]*": /, '')}` : read.kind
}
const planOf = (entriesMax = 100) => {
  const plan = new TreePlan(entriesMax)
  return { plan, file: (path: string) => plan.addFile(path.split('/')) }
}

test('goal: two names that differ in case or composition alone collide, also of their directories', () => {
  // Each pair has one form by NFKC and lower case; NFC alone would leave the last three apart.
  const pairs = [
    ['README', 'readme'],
    ['caf\u00e9', 'cafe\u0301'],
    ['\u212b', '\u00e5'],
    ['\ufb01le', 'file'],
    ['a\u00b2', 'a2'],
    ['\uff21', 'a'],
  ] as const
  for (const [name, other] of pairs) {
    for (const [first, second] of [
      [name, other],
      [other, name],
      [`d/${name}`, `d/${other}`],
      [`${name}/x`, `${other}/y`],
    ] as const) {
      const { file } = planOf()
      expect([first, file(first)]).toEqual([first, null])
      expect(file(second)).toContain('in case or composition alone')
    }
  }
  const { file } = planOf()
  for (const name of ['caf\u00e9', 'cafe', 'resume', 'r\u00e9sum\u00e9', '\u0131', 'i']) expect(file(name)).toBeNull()
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
  expect(['.git/config', 'a/.GIT', 'git~1', 'a/.g\u200cit/x'].map(kindOf)).toEqual(Array(4).fill('ignored'))
  expect(kindOf('.gitignore')).toBe('file .gitignore')
  expect(kindOf('')).toBe('refused an entry without a name')
  expect(kindOf(new Uint8Array([0xff]))).toBe('refused a name that is not UTF-8')
  for (const name of ['a\n', 'a\u202e', 'a\u2066', 'a\u2028', '\x7f'])
    expect([name, kindOf(name)]).toEqual([name, 'refused a control character in a name'])
  expect(kindOf('a\\b')).toContain('a backslash')
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
