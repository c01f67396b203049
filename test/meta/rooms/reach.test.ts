// Goal: no code of the host runs where a relying party verifies: the sets of rooms and packages that its commands reach
// are exactly these, over every import, and so is what the program evaluates before such a command.

import { describe, expect, test } from 'bun:test'
import { readTree } from '../tree.ts'
import { type Follow, reachOf } from './reach.ts'

const sources = readTree('src/**/*.{ts,tsx,js}', 'package.json')
const inRoom = (room: string) => [...sources.keys()].filter(path => path.startsWith(`${room}/`))

/** Rooms that a relying party may run: its commands, the terminal, the verifier, and pure or local code below them. */
const rooms = [
  'src/attest',
  'src/base',
  'src/client',
  'src/contract',
  'src/linux',
  'src/terminal',
  'src/verifier',
] as const

/** Packages that run with its commands. */
const packages = [
  '@noble/ciphers',
  '@noble/curves',
  '@noble/hashes',
  '@noble/post-quantum',
  '@scure/base',
  '@sinclair/typebox',
  '@xmldom/xmldom',
  'age-encryption',
  'commander',
  'smol-toml',
  'toml-eslint-parser',
  'xml-crypto',
]

test('goal: commands of a relying party reach these rooms and packages, by any kind of import, and no other', () => {
  const first = inRoom('src/client')
  expect(first.length).toBeGreaterThan(70)
  const reach = reachOf(sources, first, 'every')
  expect(reach.unresolved).toEqual([])
  expect(reach.rooms).toEqual([...rooms])
  expect(reach.packages).toEqual(packages)
})

test('goal: the terminal reaches neither commands nor the verifier', () => {
  const reach = reachOf(sources, inRoom('src/terminal'), 'every')
  expect(reach.unresolved).toEqual([])
  expect(reach.rooms).toEqual(['src/attest', 'src/base', 'src/contract', 'src/linux', 'src/terminal'])
})

test('goal: until a command is chosen, the program evaluates nothing of the host', () => {
  const top = ['src/cli/commands.ts', 'src/cli/index.ts', 'src/cli/operator-run.ts', 'src/cli/state-dir.ts']
  const reach = reachOf(sources, ['src/main.ts', 'src/cli/index.ts'], 'evaluated')
  expect(reach.unresolved).toEqual([])
  expect(reach.rooms.filter(room => !(rooms as readonly string[]).includes(room))).toEqual([
    'package.json',
    'src/cli',
    'src/main.ts',
  ])
  expect(reach.files.filter(path => path.startsWith('src/cli/'))).toEqual(top)
})

// Goal: `log monitor` is the one command of a relying party in a group of the operator's, whose file adds no host code.
test('the group that joins both sides evaluates nothing of the host', () => {
  const reach = reachOf(sources, ['src/cli/operator/log.ts'], 'evaluated')
  expect(reach.unresolved).toEqual([])
  expect(reach.files.filter(path => path.startsWith('src/cli/'))).toEqual(['src/cli/operator/log.ts'])
  expect(reach.rooms.filter(room => !(rooms as readonly string[]).includes(room))).toEqual(['src/cli'])
})

// Goal: the loader of each command that a relying party runs is in its room.
test('the program loads commands of relying parties from their room', () => {
  const text = sources.get('src/cli/commands.ts') ?? ''
  const loaded = [...text.matchAll(/^ {2}'?([\w-]+)'?: async .*import\('\.\.\/client\//gm)].map(match => match[1])
  expect(loaded).toEqual([
    ...[
      'client',
      'up',
      'snapshot',
      'ls',
      'ssh',
      'cp',
      'egress',
      'keys',
      'secret',
      'idle',
      'keep',
      'publish',
      'unpublish',
      'usage',
      'rm',
    ],
    ...['verify', 'show', 'connect', 'build', 'measure', 'igvm', 'id-block', 'verity'],
  ])
})

describe('a way to the host is found:', () => {
  const far = { 'src/client/a.ts': "import '../linux/b.ts'", 'src/linux/b.ts': "import '../http/c.ts'" }
  // Goal: each kind of import leads the walk to the file that it names, also through another room.
  test.each<[string, Record<string, string>]>([
    ['a static import', { 'src/client/a.ts': "import { c } from '../http/c.ts'" }],
    ['a type', { 'src/client/a.ts': "import type { C } from '../http/c.ts'" }],
    ['a type in an expression', { 'src/client/a.ts': "type C = import('../http/c.ts').C" }],
    ['a dynamic import', { 'src/client/a.ts': "const load = async () => await import('../http/c.ts')" }],
    ['a re-export', { 'src/client/a.ts': "export * from '../http/c.ts'" }],
    ['a worker', { 'src/client/a.ts': "new Worker(new URL('../http/c.ts', import.meta.url))" }],
    ['two steps', far],
  ])('%s', (_, files) => {
    const tree = new Map(Object.entries({ ...files, 'src/http/c.ts': '' }))
    expect(reachOf(tree, ['src/client/a.ts'], 'every').rooms).toContain('src/http')
  })

  // Goal: a name of package.json's map and a computed name cannot hide a file.
  test('a name that is no path', () => {
    const tree = new Map([['src/client/a.ts', "import '#console-page'\nawait import(name)"]])
    const { packages: named, unresolved } = reachOf(tree, ['src/client/a.ts'], 'every')
    expect(named).toEqual(['#console-page'])
    expect(unresolved).toEqual(['src/client/a.ts: '])
  })

  // Goal: what a runtime does not evaluate at the start is no part of the start.
  test.each<[Follow, string[]]>([
    ['every', ['src/cli', 'src/http']],
    ['evaluated', ['src/cli']],
  ])('%s', (follow, reached) => {
    const text = "import type { C } from '../http/c.ts'\nawait import('../http/c.ts')"
    const tree = new Map([
      ['src/cli/a.ts', text],
      ['src/http/c.ts', ''],
    ])
    expect(reachOf(tree, ['src/cli/a.ts'], follow).rooms).toEqual(reached)
  })
})
