import { expect, test } from 'bun:test'
import { getsMutants, importsOf, sampled, testsFor } from '../../../scripts/mutate/choose.plan.ts'
import { mutantsOf, withMutant } from '../../../scripts/mutate/mutants.ts'

const mutated = (source: string) => mutantsOf(source).map(mutant => withMutant(source, mutant))

// Goal: each kind of fault changes exactly one place of the text.
test('faults by kind', () => {
  expect(mutated('if (a < b) f()')).toEqual(['if (a <= b) f()', 'if (a < b) ;'])
  expect(mutated('const x = a >= 60_000')).toEqual(['const x = a > 60_000', 'const x = a >= (60_000 * 2)'])
  expect(mutated('const x = !a && b === true')).toEqual([
    'const x = (a) && b === true',
    'const x = !a || b === true',
    'const x = !a && b !== true',
    'const x = !a && b === false',
  ])
  expect(mutated('const x = a - 1')).toEqual(['const x = a + 1', 'const x = a - (1 + 1)'])
  expect(mutated('await save(x)')).toEqual([';'])
  expect(mutated("const ROWS = { a: 'x', b: ['y'] } as const")).toEqual([
    "const ROWS = {  b: ['y'] } as const",
    "const ROWS = { a: 'x',  } as const",
    "const ROWS = { a: 'x', b: [] } as const",
  ])
})

// Goal: what no test could see gets no fault: types, imports, sums of texts, assertions and log lines.
test('no faults', () => {
  const source = `import { x } from './x.ts'
type A = { readonly a: 1 | true }
const text = 'a' + b + 'c'
assert(a < b, 'order')
this.#log.warn('late', { ms: 5 })
`
  expect(mutated(source)).toEqual([])
})

// Goal: pure files get faults, and the nearest tests of a file run for it: its mirror, unit tests before slow ones,
// those that import it before those of its folder that reach it.
test('which files, and which tests', () => {
  expect(getsMutants('src/attest/hash.ts', 'export const x = 1')).toBe(true)
  expect(getsMutants('src/vm/launch.plan.ts', '')).toBe(true)
  expect(getsMutants('src/fleet/a.ts', '// Places for hosts. Pure.\n')).toBe(true)
  expect(getsMutants('src/fleet/a.ts', '// Places for hosts. Effects: SQL.\n')).toBe(false)
  const imports = new Map([
    ['test/vm/a.test.ts', []],
    ['test/vm/b.test.ts', importsOf('test/vm/b.test.ts', "import { a } from '../../src/vm/a.ts'")],
    ['test/vm/c.slow.test.ts', ['src/vm/a.ts']],
    ['test/vm/d.test.ts', ['src/vm/d.ts']],
    ['test/vm/d.root.test.ts', ['src/vm/f.ts']],
    ['test/net/d.test.ts', ['src/vm/d.ts']],
    ['src/vm/d.ts', ['src/vm/e.ts']],
    ['src/vm/k.ts', ['src/vm/f.ts', 'src/vm/k.ts']],
    ['test/vm/f.slow.test.ts', ['src/vm/k.ts']],
    ['test/vm/g.slow.test.ts', ['src/vm/k.ts']],
  ])
  expect(testsFor('src/vm/a.ts', imports)).toEqual(['test/vm/a.test.ts', 'test/vm/b.test.ts'])
  expect(testsFor('src/vm/c.ts', imports)).toEqual(['test/vm/c.slow.test.ts'])
  expect(testsFor('src/vm/d.ts', imports)).toEqual(['test/net/d.test.ts', 'test/vm/d.test.ts'])
  expect(testsFor('src/vm/e.ts', imports)).toEqual(['test/vm/d.test.ts'])
  expect(testsFor('src/vm/f.ts', imports)).toEqual(['test/vm/f.slow.test.ts'])
  expect(testsFor('src/vm/k.ts', imports)).toEqual(['test/vm/f.slow.test.ts', 'test/vm/g.slow.test.ts'])
  expect(testsFor('src/vm/h.ts', imports)).toEqual([])
})

// Goal: one seed gives one sample, without repetition, and another seed another one.
test('samples', () => {
  const items = Array.from({ length: 100 }, (_, index) => index)
  const first = sampled(items, 30, 1)
  expect(new Set(first).size).toBe(30)
  expect(sampled(items, 30, 1)).toEqual(first)
  expect(sampled(items, 30, 2)).not.toEqual(first)
  expect(sampled(items, 200, 1).toSorted((a, b) => a - b)).toEqual(items)
})
