// The help topic `threats` has a section for each service and actor, with tests that exist.

import { expect, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { readTree, root } from './tree.ts'

const services = ['A, instances', 'B, gateway', 'C, builds']
const actors = ['host', 'tenant', 'client', 'upstream', 'build source', 'network', 'another host']
const pairs = services.flatMap(service => actors.map(actor => `${service}: ${actor}`))

const topic = 'src/cli/help/threats.md'
const sections = (readTree(topic).get(topic) ?? '')
  .split(/^##+ /m)
  .map(section => ({ title: section.split('\n', 1)[0] ?? '', body: section.slice(section.indexOf('\n')) }))
  .filter(({ title }) => services.some(service => title.startsWith(`${service}: `)))

test('goal: every service has a section for every actor, once', () => {
  expect(sections.map(({ title }) => title)).toEqual(pairs)
})

test('goal: every section names the worst, and tests that exist', () => {
  for (const { title, body } of sections) {
    const [worst = '', shownBy = ''] = body.split('\nShown by:\n')
    const tests = [...shownBy.matchAll(/^- `(test\/[^`]+)`$/gm)].map(([, path]) => path ?? '')
    expect([title, worst.trim().length > 10, tests.length > 0]).toEqual([title, true, true])
    expect(tests.filter(path => !existsSync(join(root, path)))).toEqual([])
  }
})
