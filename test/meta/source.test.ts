import { describe, expect, test } from 'bun:test'
import { codeOf, functionsOf, importsOf, lineCountOf } from './source.ts'

describe('codeOf', () => {
  // Goal: what is not code is blanked, what is code stays, and no character moves.
  test.each([
    ['a // b', 'a     '],
    ['#!/usr/bin/bun\na', '              \na'],
    ['a /* b\nc */ d', 'a     \n     d'],
    ["f('// no') // yes", "f('     ')       "],
    ["'it\\'s' + x", "'     ' + x"],
    // biome-ignore-start lint/suspicious/noTemplateCurlyInString: source text
    ['`a ${b + `c ${d}`} e` + f', '`  ${b + `  ${d}`}  ` + f'],
    ['`${ { a: { b } } }x` + y', '`${ { a: { b } } } ` + y'],
    // biome-ignore-end lint/suspicious/noTemplateCurlyInString: source text
    ['x = /[\'"]/g; y', 'x = /    /g; y'],
    ['x = a / b / c', 'x = a / b / c'],
    ["return /'/.test(a) // '", 'return / /.test(a)     '],
    ['x = /[/]"/', 'x = /    /'],
  ])('%j', (text, code) => {
    expect(codeOf(text)).toBe(code)
    expect(codeOf(text)).toHaveLength(text.length)
  })
})

describe('importsOf', () => {
  const plain = { isTypeOnly: false, isDynamic: false, line: 1 }

  // Goal: every form in which one module names another is found, with the right kind.
  test.each([
    ["import a from './a.ts'", { ...plain, specifier: './a.ts' }],
    ["import * as a from './a.ts'", { ...plain, specifier: './a.ts' }],
    ["import './a.ts'", { ...plain, specifier: './a.ts' }],
    ["import a, { type B } from './a.ts'", { ...plain, specifier: './a.ts' }],
    ['import { type A, type B } from "./a.ts"', { ...plain, specifier: './a.ts' }],
    ["import type { A } from './a.ts'", { ...plain, specifier: './a.ts', isTypeOnly: true }],
    ["import type A from './a.ts'", { ...plain, specifier: './a.ts', isTypeOnly: true }],
    ["import type from './a.ts'", { ...plain, specifier: './a.ts' }],
    ["export * from './a.ts'", { ...plain, specifier: './a.ts' }],
    ["export type { A } from './a.ts'", { ...plain, specifier: './a.ts', isTypeOnly: true }],
    ["export { a as b } from './a.ts'", { ...plain, specifier: './a.ts' }],
    ["import data from './a.json' with { type: 'json' }", { ...plain, specifier: './a.json' }],
    ["const a = await import('./a.ts')", { ...plain, specifier: './a.ts', isDynamic: true }],
    ['const a = await import(name)', { ...plain, specifier: '', isDynamic: true }],
    ["type A = import('./a.ts').A", { ...plain, specifier: './a.ts', isDynamic: true }],
    ["const a = require('./a.ts')", { ...plain, specifier: './a.ts', isDynamic: true }],
  ])('%s', (text, expected) => {
    expect(importsOf(text)).toEqual([expected])
  })

  // Goal: text that only looks like an import is none.
  test.each([
    "// import a from './a.ts'",
    "/* export * from './a.ts' */",
    'const text = "import a from \'./a.ts\'"',
    "const text = `import a from './a.ts'`",
    "Array.from('abc')",
    "foo.import('./a.ts')",
    'import.meta.dir',
    "export const from = 'x'",
    "export function a() { return 'x' }",
  ])('%s', text => {
    expect(importsOf(text)).toEqual([])
  })

  // Goal: neighbouring statements do not run into each other, and lines are those of the statement.
  test('several statements', () => {
    const text = "export type { A }\nimport {\n  b,\n} from './b.ts'\nimport c from './c.ts'\n"
    expect(importsOf(text).map(({ specifier, isTypeOnly, line }) => [specifier, isTypeOnly, line])).toEqual([
      ['./b.ts', false, 2],
      ['./c.ts', false, 5],
    ])
  })
})

describe('functionsOf', () => {
  // Goal: the functions of formatted code are found with their lengths; control flow and types are not functions.
  test('forms', () => {
    const text = [
      'export async function a(b: string): Promise<void> {',
      '  if (b) {',
      '    c()',
      '  }',
      '}',
      'const d = (e: number) => {',
      '  return `',
      '}`',
      '}',
      'class F {',
      '  async g(h: string) {',
      '    for (const i of h) {',
      '    }',
      '  }',
      '}',
      'type J = {',
      '  k: string',
      '}',
      'function l(',
      '  m: string,',
      '): void {',
      '  n()',
      '}',
      'const o = () => ({',
      '  p: 1,',
      '})',
    ].join('\n')
    expect(functionsOf(text)).toEqual([
      { line: 1, lineCount: 5 },
      { line: 6, lineCount: 4 },
      { line: 11, lineCount: 4 },
      { line: 21, lineCount: 3 },
      { line: 24, lineCount: 3 },
    ])
  })
})

// Goal: a function inside another counts for itself, and its lines count for the other too.
test('nested functions', () => {
  const text = 'function a() {\n  b(() => {\n    c(() => {\n    })\n  })\n  d()\n}'
  expect(functionsOf(text)).toEqual([
    { line: 1, lineCount: 7 },
    { line: 2, lineCount: 4 },
    { line: 3, lineCount: 2 },
  ])
})

// Goal: a last line break does not count as a line.
test('lineCountOf', () => {
  expect([lineCountOf('a'), lineCountOf('a\n'), lineCountOf('a\nb\n')]).toEqual([1, 1, 2])
})
