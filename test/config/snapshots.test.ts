// Goal: the port of snapshots is free where VMs reach it, and one organization may not have more than all.

import { expect, test } from 'bun:test'
import { parseConfig } from '../../src/config/parse.ts'

const problems = (toml: string): string[] => {
  const verdict = parseConfig(toml, 'f')
  return verdict.ok ? [] : verdict.problems.map(({ field }) => field)
}

// Goal: each configuration has exactly these problems.
test.each<[string, string[]]>([
  ['', []],
  ['[snapshots]\nport = 8441', ['snapshots.port']],
  ['[snapshots]\nport = 8441\nkept_per_instance = 0', []],
  ['[listen]\ninstances = "127.0.0.1:8441"\n[snapshots]\nport = 8441', []],
  ['[listen]\ninference = "0.0.0.0:8446"\n[snapshots]\nport = 8446', ['snapshots.port']],
  ['snapshots = { port = 8446 }\n[listen]\nmetrics = "0.0.0.0:8446"', ['snapshots.port']],
  [
    '[listen]\nbuilds = "0.0.0.0:8443"\n[builds]\nfetch_hosts = ["git.example"]\nfetch_port = 8446\n[snapshots]\nport = 8446',
    ['snapshots.port'],
  ],
  ['[snapshots]\ngib_per_organization = 6\ngib_max = 5', ['snapshots.gib_per_organization']],
  ['[snapshots]\nkept_per_instance = 101', ['snapshots.kept_per_instance']],
])('goal: problems of %p', (toml, expected) => {
  expect(problems(toml)).toEqual(expected)
})

const buildsOn8446 = '[builds]\nfetch_hosts = ["git.example"]\nfetch_port = 8446'

// Goal: a file that names no port of snapshots is right beside any other port, and its snapshots have a free one.
test.each([
  ['', 8446],
  ['[listen]\nconsole = "0.0.0.0:8446"', 8447],
  ['[listen]\nmetrics = "0.0.0.0:8446"', 8447],
  ['[listen]\ninference = "127.0.0.1:8446"', 8446],
  [`[listen]\nbuilds = "0.0.0.0:8443"\nconsole = "0.0.0.0:8447"\n${buildsOn8446}`, 8448],
  ['[listen]\nconsole = "0.0.0.0:8446"\n[snapshots]\nkept_per_instance = 0', 8446],
])('goal: the port without a name of it, beside %p', (toml, port) => {
  const verdict = parseConfig(toml, 'f')
  expect(verdict.ok ? verdict.config.snapshots.port : verdict.problems).toEqual(port)
})
