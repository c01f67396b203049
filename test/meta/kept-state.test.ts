// Goal: the gateway's VM keeps nothing between two requests that the register does not name, with the secret that opens
// it, its bound and its test.

import { expect, test } from 'bun:test'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { findKeptState, type Site } from './kept-state.ts'
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

/** `Class.*` names every place whose name begins so. */
const names = (pattern: string, name: string) =>
  pattern.endsWith('.*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name

function compare(found: readonly Site[], rows: readonly Row[]) {
  const isOf = (site: Site, row: Row) =>
    row.paths.includes(site.path) && row.names.some(pattern => names(pattern, site.name))
  const textOf = ({ path, name }: Site) => `${path} ${name}`
  const rowsWith = (site: Site) => rows.filter(row => isOf(site, row)).length
  return {
    unlisted: found.filter(site => rowsWith(site) === 0).map(textOf),
    listedTwice: found.filter(site => rowsWith(site) > 1).map(textOf),
    gone: rows.flatMap(row => {
      const inPaths = found.filter(site => row.paths.includes(site.path))
      return [
        ...row.names.filter(pattern => !inPaths.some(({ name }) => names(pattern, name))),
        ...row.paths.filter(path => !program.has(path)),
        ...(row.names.length === 0
          ? []
          : row.paths.filter(path => !inPaths.some(site => site.path === path && isOf(site, row)))),
      ]
    }),
  }
}

test('goal: each place that keeps state is in one row of the register, and each in the register is in the source', () => {
  expect(compare(findKeptState(program), rowsOf())).toEqual({ unlisted: [], listedTwice: [], gone: [] })
}, 120_000)

test('goal: what is secret, or text of clients, has what opens it, a bound, and a test that exists', () => {
  const rows = rowsOf('Secrets, and text of clients')
  expect(rows.length).toBeGreaterThan(10)
  expect(rows.flatMap(row => row.names).filter(name => name.includes('*'))).toEqual([])
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

/** A way to keep a text, as source; the site that it is. */
type Form = readonly [title: string, text: string, name: string]

const keep = '(k: string, v: string) => {'

// Goal: state cannot be added in another spelling.
const forms: readonly Form[] = [
  ['a map of a closure', `function makeA() { const kept = new Map(); return ${keep} kept.set(k, v) } }`, 'makeA.kept'],
  [
    'a map with contents of a closure',
    `function makeB(a: Pairs) { const kept = new Map(a); return ${keep} kept.set(k, v) } }`,
    'makeB.kept',
  ],
  [
    'a dictionary of a closure',
    `function makeC() { const kept: Record<string, string> = {}; return ${keep} kept[k] = v } }`,
    'makeC.kept',
  ],
  [
    'a dictionary of an object with methods',
    'function makeD() { const kept = { text: "" }; return { keep(v: string) { kept.text = v } } }',
    'makeD.kept',
  ],
  [
    'a dictionary in a field',
    'class FormE { readonly #kept: Record<string, string> = {}; keep(v: string) { this.#kept.a = v } }',
    'FormE.#kept',
  ],
  [
    'a dictionary of the module',
    'const keptF = { list: [] as string[] }; export const keepF = (v: string) => { keptF.list.push(v) }',
    'keptF',
  ],
  [
    'a field that the constructor sets',
    'class FormG { readonly kept; constructor() { this.kept = new Map() } }',
    'FormG.kept',
  ],
  [
    'a default of a constructor',
    'class FormH { constructor(private readonly kept = new Map<string, string>()) {} }',
    'FormH.kept',
  ],
  ['a default of a function', `function makeI(kept = new Map()) { return ${keep} kept.set(k, v) } }`, 'makeI.kept'],
  ['a last value of a closure', `function makeJ() { let last = ''; return (v: string) => { last = v } }`, 'makeJ.last'],
  ['a last value of the module', 'let lastK: string | null = null', 'lastK'],
  ['a last value in a field', 'class FormL { #last: string | null = null }', 'FormL.#last'],
  [
    'an array of a length',
    'function makeM() { const ring = new Array<string>(64); return (v: string) => { ring[0] = v } }',
    'makeM.ring',
  ],
  ['an array from', "class FormN { readonly #ring = Array.from({ length: 64 }, () => '') }", 'FormN.#ring'],
  [
    'a linked list',
    'class FormO { #head: Node | null = null; keep(v: string) { this.#head = { v, next: this.#head } } }',
    'FormO.#head',
  ],
  ['a parameter', 'function makeP(last = "") { return (v: string) => { last = v } }', 'makeP.last'],
  ['bytes', 'function makeQ() { const kept = new Uint8Array(9); return (v: Bytes) => kept.set(v) }', 'makeQ.kept'],
  [
    'a class with state',
    'class FormR { text = "" }\nfunction makeR() { const r = new FormR(); return () => r }',
    'makeR.r',
  ],
  [
    'a property of a function',
    'function keepS(v: string) { keepS.last = v }\nnamespace keepS { export let last: string }',
    'keepS',
  ],
  ['a property of the process', 'const keepT = (v: string) => { globalThis.last = v }', 'globalThis'],
  ['a property of the environment', 'const keepU = (v: string) => { process.env.LAST = v }', 'process'],
  ['a pattern', 'function makeV() { let [last, first] = ["", ""]; return (v: string) => { last = v } }', 'makeV.last'],
  ['a generator', 'function* makeW() { let last = ""; while (last !== "end") last = yield last }', 'makeW.last'],
  ['a loop', 'async function runX(all: S) { let last = ""; for await (const x of all) last = x.text }', 'runX.last'],
  [
    'a frozen map',
    `function makeY() { const kept = Object.freeze(new Map()); return ${keep} kept.set(k, v) } }`,
    'makeY.kept',
  ],
  [
    'a map that is only declared readonly',
    `function makeZ(a: A) { const kept: ReadonlyMap<A, A> = new Map(a); return () => (kept as Map<A, A>).clear() }`,
    'makeZ.kept',
  ],
  [
    'a list that a helper fills',
    'function makeZa(a: A) { const kept = [a]; const add = (v: A) => fill(kept, v); return add }',
    'makeZa.kept',
  ],
  [
    'a map in a pattern',
    `function makeZc() { const { kept } = { kept: new Map() }; return ${keep} kept.set(k, v) } }`,
    'makeZc.kept',
  ],
  [
    'an object that uses itself',
    'function makeZd() { return { last: "", keep(v: string) { this.last = v } } }',
    'keep.last',
  ],
  [
    'a map of a helper',
    `function freshZe() { return new Map() }\nfunction makeZe() { const m = freshZe(); return ${keep} m.set(k, v) } }`,
    'makeZe.m',
  ],
  ['a static method', 'class FormZf { static keep(v: string) { this.last = v } }', 'FormZf.last'],
  [
    'a readonly field that is cast',
    'class FormZg { readonly a: string = ""; keep(v: string) { (this as Open).a = v } }',
    'FormZg.a',
  ],
  ['a map that a call gets', 'const keepZh = wrapZh(new Map())', 'keepZh'],
  ['a class that is a map', 'class FormZi extends Map {}\nconst keptZi = new FormZi()', 'keptZi'],
  [
    'an assignment of a pattern',
    'function makeZj() { const o = { a: "" }; return (v: string) => { [o.a] = [v] } }',
    'makeZj.o',
  ],
  [
    'a loop that waits',
    'async function runZk(s: S) { let last = ""; while (!s.ended) last = await s.next(last) }',
    'runZk.last',
  ],
  ['a secret', 'function makeZb(random: R) { const secret = random(32); return () => secret }', 'makeZb.secret'],
]

test.each(forms)('goal: %s', (_, text, name) => {
  expect(namesIn(text)).toContain(name)
})

test('goal: each of these forms in a file of the VM is a place that the register does not have', () => {
  const path = 'src/inference/gateway/response-memory.ts'
  const text = program.get(path) ?? ''
  expect(text).not.toBe('')
  const rows = rowsOf()
  const before = compare(findKeptState(new Map([[path, text]])), rows).unlisted
  expect(before).toEqual([])
  const after = forms.map(([, form]) => compare(findKeptState(new Map([[path, `${text}\n${form}\n`]])), rows).unlisted)
  expect(after.map(unlisted => unlisted.slice(-1))).toEqual(forms.map(([, , name]) => [`${path} ${name}`]))
})

// Goal: constants, services that a function was given, and what ends with a call are no places.
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
  ['a constant table', "const T = { a: [1, 2], b: 'x' } as const\nconst U = Object.freeze({ a: ['x'] })", []],
  ['a constant field', "class A { readonly names: ReadonlySet<string> = new Set(['a']); readonly n = 1 }", []],
  ['a field for a service', 'class A { readonly #deps: Deps; constructor(deps: Deps) { this.#deps = deps } }', []],
  ['what a function was given', 'function f({ clock, log }: Deps) { return () => log.info(clock.nowMs()) }', []],
  ['an index that is only read', 'function f(a: A) { const by = new Map(a); return (k: string) => by.get(k) }', []],
  ['a class without state', 'class A { readonly n = 1 }\nfunction f() { const a = new A(); return () => a.n }', []],
  ['a local variable', 'function f(x: string[]) { const seen = new Set(); return x.filter(y => !seen.has(y)) }', []],
  ['a helper of one call', 'function f() { let n = 0; const next = () => { n += 1 }; next(); return n }', []],
  ['another variable of that name', 'function f() { let n = 0; n += 1; return (n: number) => n }', []],
])('goal: %s', (_, text, names) => {
  expect(namesIn(text)).toEqual([...names])
})

test('goal: each use of a container of src/base is a place of its own', () => {
  const base = 'export class TextCache { readonly #kept = new Map<string, string>() }'
  const uses = 'class A { readonly #texts = new TextCache() }\nfunction create() { const kept = new TextCache() }'
  expect(namesIn(uses, base)).toEqual(['A.#texts', 'create.kept'])
})
