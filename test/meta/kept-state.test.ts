// Goal: the gateway's VM keeps nothing between two requests that the register does not name, with the secret that opens
// it, its bound and its test.

import { expect, test } from 'bun:test'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { findKeptState } from './kept-state.ts'
import { readTree, root, type Tree } from './tree.ts'

const inputs: { readonly files: readonly string[] } = JSON.parse(
  readFileSync(join(root, 'guest-image/enclave-inputs.json'), 'utf8'),
)
const program = readTree(...inputs.files.filter(path => path.startsWith('src/') && path.endsWith('.ts')))
const register = readFileSync(join(root, 'src/KEPT_STATE.md'), 'utf8')

type Row = { readonly paths: readonly string[]; readonly names: readonly string[]; readonly cells: readonly string[] }

const quoted = (cell = '') => [...cell.matchAll(/`([^`]+)`/g)].map(([, text = '']) => text)

/** Rows of the section with this heading; of all sections without one. */
function rowsOf(heading?: string): readonly Row[] {
  const sections = register.split('\n## ').filter(text => heading === undefined || text.startsWith(heading))
  const lines = sections.flatMap(text => text.split('\n').filter(line => line.startsWith('| `')))
  return lines.map(line => {
    const cells = line.split('|').map(cell => cell.trim())
    const [, where, names] = cells
    return { paths: quoted(where).map(path => `src/${path}`), names: quoted(names), cells: cells.slice(1, -1) }
  })
}

test('goal: each place that keeps state is in the register, and each in the register is in the source', () => {
  const found = findKeptState(program)
  const rows = rowsOf()
  const isListed = (path: string, name: string) =>
    rows.some(row => row.paths.includes(path) && row.names.includes(name))
  const unlisted = found.filter(({ path, name }) => !isListed(path, name)).map(({ path, name }) => `${path} ${name}`)
  const gone = rows.flatMap(({ paths, names }) => [
    ...names.filter(name => !found.some(site => site.name === name && paths.includes(site.path))),
    ...paths.filter(path => !program.has(path)),
    ...(names.length === 0
      ? []
      : paths.filter(path => !found.some(site => site.path === path && names.includes(site.name)))),
  ])
  expect({ unlisted, gone }).toEqual({ unlisted: [], gone: [] })
}, 120_000)

test('goal: what is secret, or text of clients, has what opens it, a bound, and a test that exists', () => {
  const rows = rowsOf('Secrets, and text of clients')
  expect(rows.length).toBeGreaterThan(10)
  const incomplete = rows.filter(({ cells }) => cells.length !== 6 || cells.slice(2).some(cell => cell.length < 5))
  const untested = rows.filter(({ cells }) => {
    const tests = quoted(cells[5])
    return tests.length === 0 || !tests.every(path => existsSync(join(root, path)))
  })
  expect({ incomplete, untested }).toEqual({ incomplete: [], untested: [] })
})

const namesIn = (text: string, base = '') =>
  findKeptState(new Map([['src/a.ts', text], ...(base === '' ? [] : [['src/base/b.ts', base] as const])]) as Tree)
    .filter(({ path }) => path === 'src/a.ts')
    .map(({ name }) => name)

// Goal: state cannot be added in another spelling.
test.each<readonly [string, string, readonly string[]]>([
  ['a variable of a module', 'const seen = new Map<string, string>()', ['seen']],
  ['one with contents that changes', "const seen = ['a']\nexport const add = (x: string) => seen.push(x)", ['seen']],
  ['a replaced value', 'let last: string | null = null', ['last']],
  ['a field', 'class A { readonly #kept: Set<string> = new Set() }', ['A.#kept']],
  ['a field without a type', 'class A { kept = [] }', ['A.kept']],
  [
    'a field that a constructor fills',
    'class A { readonly kept: string[]; constructor() { this.kept = [] } }',
    ['A.kept'],
  ],
  ['a static field', 'class A { static kept = new WeakMap() }', ['A.kept']],
  ['a field that gets another map', 'class A { #keys: ReadonlyMap<string, string> = new Map() }', ['A.#keys']],
  [
    'a closure',
    'function create() { const kept = new Map(); return { get: (id: string) => kept.get(id) } }',
    ['create.kept'],
  ],
  ['a closure of an arrow', 'const create = () => { const kept: T = new Map(); return () => kept }', ['create.kept']],
  ['a closure of a listener', 'function f(s: S) { const all: string[] = []; s.on("x", t => all.push(t)) }', ['f.all']],
  [
    'a closure of a helper',
    'function f() { let all: string[] = []; const g = () => { all = [] }; return g }',
    ['f.all'],
  ],
  ['an assigned method', 'function f(o: O) { const all = new Map(); o.prepare = t => all.get(t) }', ['f.all']],
  ['a file', 'export function keep(text: string) { writeFileSync("/x", text) }', ['keep.writeFileSync']],
  ['a database', 'export const open = () => new Database(":memory:")', ['open.Database']],
  ['a constant', "const NAMES = new Set(['a'])\nconst NONE: readonly string[] = []\nconst list = [1, 2]", []],
  ['a constant field', "class A { readonly names: ReadonlySet<string> = new Set(['a']) }", []],
  ['a local variable', 'function f(x: string[]) { const seen = new Set(); return x.filter(y => !seen.has(y)) }', []],
])('goal: %s', (_, text, names) => {
  expect(namesIn(text)).toEqual([...names])
})

test('goal: each use of a container of src/base is a place of its own', () => {
  const base = 'export class KeptTexts { readonly #kept = new Map<string, string>() }'
  const uses = 'class A { readonly #texts = new KeptTexts() }\nfunction create() { const kept = new KeptTexts() }'
  expect(namesIn(uses, base)).toEqual(['A.#texts', 'create.kept'])
})
