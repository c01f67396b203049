// The table in the help topic `threats`: each service against each actor, each row with tests that exist.

import { expect, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { readTree, root } from './tree.ts'

const services = ['A, instances', 'B, gateway', 'C, builds']
const actors = ['host', 'tenant', 'client', 'upstream', 'build source', 'network', 'another host']

const topic = 'src/cli/help/threats.md'
const rows = (readTree(topic).get(topic) ?? '')
  .split('\n')
  .map(line => line.split('|').map(cell => cell.trim()))
  .filter(([, service]) => services.includes(service ?? ''))

test('goal: every service stands against every actor, once', () => {
  const found = rows.map(([, service, actor]) => `${service}: ${actor}`)
  expect(found).toEqual(services.flatMap(service => actors.map(actor => `${service}: ${actor}`)))
})

test('goal: every row says the worst, and names tests that are there', () => {
  for (const [, service, actor, worst = '', shown = ''] of rows) {
    const tests = [...shown.matchAll(/`(test\/[^`]+)`/g)].map(([, path]) => path ?? '')
    expect([service, actor, worst.length > 10, tests.length > 0]).toEqual([service, actor, true, true])
    expect(tests.filter(path => !existsSync(join(root, path)))).toEqual([])
  }
})
