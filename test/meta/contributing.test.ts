// Goal: CONTRIBUTING and CHANGELOG name files and scripts that exist.

import { expect, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { scripts } from '../../package.json' with { type: 'json' }
import { readTree, root } from './tree.ts'

const documents = readTree('{CONTRIBUTING,CHANGELOG}.md')
/** Stand for a name of the reader's choice. */
const placeholder = /NAME|NNNN/

test.each([...documents])('goal: every path in %s leads somewhere', (_, text) => {
  const quoted = [...text.matchAll(/`((?:src|test|scripts|guest-image|examples)\/[^`\s]*)`/g)].map(
    ([, path = '']) => path,
  )
  const links = [...text.matchAll(/\]\((?!https:)([^)#]+)\)/g)].map(([, path = '']) => path)
  const gone = [...quoted, ...links].filter(path => {
    if (placeholder.test(path)) return false
    return path.includes('*') ? readTree(path).size === 0 : !existsSync(join(root, path))
  })
  expect(gone).toEqual([])
})

test('goal: every script that CONTRIBUTING has people run is in package.json', () => {
  const run = [...(documents.get('CONTRIBUTING.md') ?? '').matchAll(/bun run (\w+)/g)].map(([, name = '']) => name)
  expect(run.length).toBeGreaterThan(3)
  for (const name of run) expect(Object.keys(scripts)).toContain(name)
})
