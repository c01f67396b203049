// Links and paths in the project's pages lead to what is there.

import { expect, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { readTree, root, type Tree } from './tree.ts'

const pages = readTree('*.md', 'src/**/*.md', 'scripts/**/*.md', 'guest-image/**/*.md', 'examples/**/*.md')
const readme = pages.get('README.md') ?? ''

function linkFaults(tree: Tree): string[] {
  return [...tree].flatMap(([path, text]) =>
    [...text.matchAll(/\]\(([^)\s]+)\)/g)].flatMap(([, target = '']) => {
      if (/^[a-z]+:/.test(target)) return []
      const [file = '', anchor] = target.split('#')
      const to = file === '' ? path : normalize(join(dirname(path), file))
      if (!tree.has(to) && !existsSync(join(root, to))) return [`${path}: ${target} is not there`]
      const isThere = anchor === undefined || anchorsOf(tree.get(to) ?? '').has(anchor)
      return isThere ? [] : [`${path}: ${target} names no heading`]
    }),
  )
}

/** As GitHub makes them of headings. */
function anchorsOf(text: string): Set<string> {
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, title = '']) => title.toLowerCase())
  return new Set(headings.map(title => title.replace(/[^\p{L}\p{N}\s_-]/gu, '').replaceAll(' ', '-')))
}

test('goal: every link of every page leads to a file, and to a heading in it', () => {
  expect(pages.size).toBeGreaterThan(20)
  expect(linkFaults(pages)).toEqual([])
})

test('goal: a dead link and a dead anchor are found', () => {
  const tree = (text: string) => new Map([['a.md', text]])
  expect(linkFaults(tree('[x](gone.md)'))).toEqual(['a.md: gone.md is not there'])
  expect(linkFaults(tree('# One two\n[x](#one-two) [y](#three)'))).toEqual(['a.md: #three names no heading'])
})

test('goal: README is short, and no line of it is long', () => {
  const lines = readme.trimEnd().split('\n')
  expect(lines.length).toBeLessThanOrEqual(190)
  expect(lines.filter(line => line.length > 100)).toEqual([])
})

test('goal: README leads to installing, verifying, the egress cap, adding an endpoint, and to every help topic', () => {
  for (const path of ['install.md', 'verify.md', 'egress.md']) expect(readme).toContain(`src/cli/help/${path}`)
  expect(readme).toContain('CONTRIBUTING.md')
  const topics = [...pages.keys()].filter(path => path.startsWith('src/cli/help/'))
  expect(topics.filter(path => !readme.includes(`(${path})`))).toEqual([])
})
