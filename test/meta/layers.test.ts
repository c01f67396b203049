import { describe, expect, test } from 'bun:test'
import {
  APART,
  cycleFaults,
  dependencyFaults,
  formFaults,
  innerOrderFaults,
  LAYERS,
  layerFaults,
  scriptFaults,
  suffixFaults,
} from './layers.ts'
import { INNER_ORDERS } from './rooms/inner-orders.ts'
import { readTree, type Tree } from './tree.ts'

const sources = readTree('src/**/*.{ts,tsx}')

describe('the sources', () => {
  // Goal: imports of src point downward only, type imports and dynamic imports included; siblings stay apart.
  test('layers', () => expect(layerFaults(sources)).toEqual([]))

  // Goal: the floors inside a room hold as the layers do.
  test('inner orders', () => expect(innerOrderFaults(sources)).toEqual([]))

  // Goal: no module reaches itself through its imports.
  test('cycles', () => expect(cycleFaults(sources)).toEqual([]))

  // Goal: base depends on nothing, attest and verifier on nothing but data, and every import can be checked.
  test('dependencies', () => expect(dependencyFaults(sources)).toEqual([]))

  // Goal: a file called pure is pure.
  test('suffixes', () => expect(suffixFaults(sources)).toEqual([]))

  // Goal: every file says what it is, and has a name that means something.
  test('form', () => {
    expect(formFaults(sources)).toEqual([])
    expect(formFaults(readTree('scripts/**/*.ts'))).toEqual([])
  })

  // Goal: tests stand on scripts and their rigs, never the other way round.
  test('scripts without tests', () => {
    expect(scriptFaults(readTree('scripts/**/*.ts'))).toEqual([])
    expect(scriptFaults(treeOf({ 'scripts/a.ts': "import '../test/rigs/b.ts'" }))).toHaveLength(1)
  })

  // Goal: the rules see the whole tree; a wrong root would pass everything.
  test('are all seen', () => {
    expect(sources.has('src/base/fault.ts')).toBe(true)
    expect(sources.size).toBeGreaterThan(10)
  })
})

// Goal: over every pair of units the matrix is what the layer map draws: what may import what, and nothing both ways.
test('the matrix of units', () => {
  const units = [...Object.keys(LAYERS), ...Object.keys(APART)]
  const fileOf = (unit: string) => (unit.endsWith('.ts') ? unit : `${unit}/x.ts`)
  const allowed = units.flatMap(from =>
    units
      .filter(to => {
        const tree = treeOf({ [fileOf(from)]: `import '${relative(fileOf(from), fileOf(to))}'`, [fileOf(to)]: '' })
        return from !== to && layerFaults(tree).length === 0
      })
      .map(to => `${from} -> ${to}`),
  )
  expect(allowed).toHaveLength(250)
  for (const pair of allowed) expect(allowed).not.toContain(pair.split(' -> ').reverse().join(' -> '))
  expect(allowed.filter(pair => /src\/(?:guest|verifier|terminal|client|enclave|builder)$/.test(pair))).toEqual([
    'src/inference -> src/verifier',
    'src/enclave-host -> src/verifier',
    'src/cli -> src/verifier',
    'src/cli -> src/terminal',
    'src/cli -> src/client',
    'src/main.ts -> src/terminal',
    'src/guest -> src/verifier',
    'src/builder -> src/guest',
    'src/guest-main.ts -> src/guest',
    'src/client -> src/verifier',
    'src/client -> src/terminal',
    'src/enclave -> src/guest',
  ])
  const services = ['src/instances', 'src/inference', 'src/builds', 'src/operator', 'src/console']
  const between = allowed.map(pair => pair.split(' -> ')).filter(pair => pair.every(unit => services.includes(unit)))
  expect(between).toEqual([])
})

// Goal: over every pair of places in a room an import is allowed exactly from a higher floor to a lower one.
test.each(Object.entries<readonly (readonly string[])[]>(INNER_ORDERS))('the floors of %s', (room, floors) => {
  const fileOf = (place: string) => (place.endsWith('.ts') ? `${room}/${place}` : `${room}/${place}/x.ts`)
  floors.forEach((upper, at) => {
    for (const [to, below] of floors.flatMap((floor, lower) => floor.map(place => [place, lower > at] as const))) {
      for (const from of upper.filter(place => place !== to)) {
        const tree = treeOf({ [fileOf(from)]: `import '${relative(fileOf(from), fileOf(to))}'`, [fileOf(to)]: '' })
        // A place may be a room with an order of its own, in which this file has no floor.
        const faults = innerOrderFaults(tree).filter(fault => fault.includes(`inside ${room},`))
        expect([from, to, faults.length]).toEqual([from, to, below ? 0 : 1])
      }
    }
  })
})

describe('a planted violation is found:', () => {
  // Goal: each rule refuses what it is there to refuse.
  test.each([
    ['an upward import', layerFaults, { 'src/vm/a.ts': "import '../builds/b.ts'" }],
    ['an upward type import', layerFaults, { 'src/base/a.ts': "import type { B } from '../contract/b.ts'" }],
    ['an upward dynamic import', layerFaults, { 'src/host/a.ts': "await import('../vm/b.ts')" }],
    ['an upward re-export', layerFaults, { 'src/store/a.ts': "export * from '../appliance/b.ts'" }],
    ['a sibling', layerFaults, { 'src/host/a.ts': "import '../store/b.ts'" }],
    ['contract and attest', layerFaults, { 'src/contract/a.ts': "import '../attest/b.ts'" }],
    ['a sibling service', layerFaults, { 'src/builds/a.ts': "import '../instances/b.ts'" }],
    ['a room above', innerOrderFaults, { 'src/attest/report/a.ts': "import type { B } from '../policy/b.ts'" }],
    ['a room beside', innerOrderFaults, { 'src/inference/keys/a.ts': "import '../limits/b.ts'" }],
    ['a room without a floor', innerOrderFaults, { 'src/inference/misc/a.ts': '' }],
    ['a file without a floor', innerOrderFaults, { 'src/attest/a.ts': '' }],
    ['appliance importing the verifier', layerFaults, { 'src/appliance/a.ts': "import '../verifier/b.ts'" }],
    ['guest importing host', layerFaults, { 'src/guest/a.ts': "import '../host/b.ts'" }],
    ['host importing guest', layerFaults, { 'src/cli/a.ts': "import '../guest/b.ts'" }],
    ['verifier importing inference', layerFaults, { 'src/verifier/gateway.ts': "import '../inference/b.ts'" }],
    ['verifier importing guest', layerFaults, { 'src/verifier/a.ts': "import '../guest/b.ts'" }],
    ['a relying party importing the host', layerFaults, { 'src/client/a.ts': "import type { B } from '../http/b.ts'" }],
    ['a relying party importing the operator', layerFaults, { 'src/client/a.ts': "await import('../cli/b.ts')" }],
    ['the terminal importing a command', layerFaults, { 'src/terminal/a.ts': "import '../client/b.ts'" }],
    ['a service importing the terminal', layerFaults, { 'src/operator/a.ts': "import '../terminal/b.ts'" }],
    ['leaving src', layerFaults, { 'src/cli/a.ts': "import '../../scripts/b.ts'" }],
    ['a new folder', layerFaults, { 'src/misc/a.ts': '' }],
    ['a cycle', cycleFaults, { 'src/vm/a.ts': "import './b.ts'", 'src/vm/b.ts': "import type { A } from './a.ts'" }],
    ['importing itself', cycleFaults, { 'src/vm/a.ts': "import './a.ts'" }],
    ['a dependency of base', dependencyFaults, { 'src/base/a.ts': "import { x } from 'node:path'" }],
    ['a package in base', dependencyFaults, { 'src/base/a.ts': "import type { X } from 'elysia'" }],
    ['node in attest', dependencyFaults, { 'src/attest/a.ts': "import { x } from 'node:crypto'" }],
    ['Bun in attest', dependencyFaults, { 'src/attest/a.ts': 'Bun.file(x)' }],
    ['the clock in attest', dependencyFaults, { 'src/attest/a.ts': 'const now = Date.now()' }],
    ['the network in attest', dependencyFaults, { 'src/attest/a.ts': 'await fetch(address)' }],
    ['node in the verifier', dependencyFaults, { 'src/verifier/a.ts': "import { x } from 'node:crypto'" }],
    ['Bun in the verifier', dependencyFaults, { 'src/verifier/a.ts': 'Bun.file(x)' }],
    ['the clock in the verifier', dependencyFaults, { 'src/verifier/a.ts': 'const now = Date.now()' }],
    ['randomness in the verifier', dependencyFaults, { 'src/verifier/a.ts': 'crypto.getRandomValues(nonce)' }],
    ['the wire in the verifier', dependencyFaults, { 'src/verifier/a.ts': "import './fetch/b.ts'" }],
    ['node in the half for pages', dependencyFaults, { 'src/verifier/fetch/a.ts': "import { x } from 'node:crypto'" }],
    ['linux in the verifier', dependencyFaults, { 'src/verifier/a.ts': "import '../linux/native-hash.ts'" }],
    [
      'linux in the half for pages',
      dependencyFaults,
      { 'src/verifier/fetch/a.ts': "import '../../linux/native-a.ts'" },
    ],
    ['files in the half for Node', dependencyFaults, { 'src/verifier/fetch/node.ts': "import '../../linux/files.ts'" }],
    ['the network in the verifier', dependencyFaults, { 'src/verifier/a.ts': 'await fetch(address)' }],
    ['a computed import', dependencyFaults, { 'src/vm/a.ts': 'await import(name)' }],
    ['a bare extension', dependencyFaults, { 'src/vm/a.ts': "import './b'" }],
    ['fs in a plan', suffixFaults, { 'src/vm/a.plan.ts': "import { readFileSync } from 'node:fs'" }],
    ['sockets in a codec', suffixFaults, { 'src/vm/a.codec.ts': "import { connect, isIP } from 'node:net'" }],
    ['fs below a plan', suffixFaults, { 'src/vm/a.plan.ts': "import './b.ts'", 'src/vm/b.ts': "import 'node:fs'" }],
    [
      'the database below a machine',
      suffixFaults,
      { 'src/vm/a.machine.ts': "import '../store/b.ts'", 'src/store/b.ts': "import 'bun:sqlite'" },
    ],
    ['host in a codec', suffixFaults, { 'src/vm/a.codec.ts': "import '../host/b.ts'" }],
    ['a query in a schema', suffixFaults, { 'src/vm/a.schema.ts': "import '../store/b.query.ts'" }],
    ['the clock in a machine', suffixFaults, { 'src/vm/a.machine.ts': 'const now = new Date()' }],
    ['fetch in a verify', suffixFaults, { 'src/vm/a.verify.ts': 'fetch(x)' }],
    ['process in a plan', suffixFaults, { 'src/vm/a.plan.ts': 'process.env.A' }],
    ['randomness in a plan', suffixFaults, { 'src/vm/a.plan.ts': "import { randomBytes } from 'node:crypto'" }],
    ['no header', formFaults, { 'src/vm/a.ts': 'export const a = 1' }],
    ['an empty name', formFaults, { 'src/vm/utils.ts': '// Utils.' }],
    ['a default export', formFaults, { 'src/vm/a.ts': '// A.\nexport default 1' }],
    ['a default alias', formFaults, { 'src/vm/a.ts': '// A.\nexport { a as default }' }],
  ] as const)('%s', (_name, rule, files) => {
    expect(rule(treeOf(files))).not.toEqual([])
  })

  // Goal: the rules do not refuse what is allowed.
  test.each([
    ['downward', layerFaults, { 'src/vm/a.ts': "import '../host/b.ts'\nimport type { C } from '../base/c.ts'" }],
    ['within a folder', layerFaults, { 'src/vm/a.ts': "import './b.ts'" }],
    ['a room below', innerOrderFaults, { 'src/inference/gateway/a.ts': "import '../keys/b.ts'" }],
    ['the version', layerFaults, { 'src/cli/a.ts': "import manifest from '../../package.json'" }],
    ['a type of an effect', suffixFaults, { 'src/vm/a.plan.ts': "import type { B } from '../host/b.ts'" }],
    ['a hash in a codec', suffixFaults, { 'src/vm/a.codec.ts': "import { createHash } from 'node:crypto'" }],
    ['address syntax', suffixFaults, { 'src/vm/a.codec.ts': "import { isIP, isIPv6 } from 'node:net'" }],
    ['a given date', suffixFaults, { 'src/vm/a.plan.ts': 'const day = new Date(nowMs)' }],
    [
      'words in comments',
      suffixFaults,
      { 'src/vm/a.plan.ts': "// fetch() and Date.now are not for us\nconst a = 'process.env'" },
    ],
    ['a shebang', formFaults, { 'src/main.ts': '#!/usr/bin/env bun\n// Entry point.' }],
  ] as const)('but not %s', (_name, rule, files) => {
    expect(rule(treeOf(files))).toEqual([])
  })
})

function treeOf(files: Readonly<Record<string, string>>): Tree {
  return new Map(Object.entries(files))
}

function relative(from: string, to: string): string {
  return `${'../'.repeat(from.split('/').length - 1)}${to}`.replace(/^(?!\.)/, './')
}
