// Goal: TOML is read as its specification says, and every value is found on its line.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { parse as otherReader, stringify } from 'smol-toml'
import { lineOf, readToml } from '../../src/linux/toml.ts'

function tableOf(text: string): unknown {
  const verdict = readToml(text)
  return verdict.ok ? verdict.table : verdict
}

test('goal: lines are found through every way of writing a key', () => {
  const text = [
    '# a = 1',
    'a = """',
    'b = 2',
    '"""',
    "c = '''x'''",
    'd.e = [ # comment with ]',
    '  "x,]", { f = 1 },',
    ']',
    '["q uoted"."é\\"x"]',
    'g = 1979-05-27T07:32:00Z',
    '[[list]]',
    'h = 1',
    '[[list]]',
    'h = 2',
    'i = "a\\"#b" # "',
    'j = true',
    '[list.inner]',
    'k = {l.m = 1}',
  ].join('\n')
  const verdict = readToml(text)
  const lines = verdict.ok ? verdict.lines : new Map<string, number>()
  const table: [string, number | undefined][] = [
    ['a', 2],
    ['b', undefined],
    ['c', 5],
    ['d', 6],
    ['d.e', 6],
    ['d.e.0', 7],
    ['d.e.1.f', 7],
    ['q uoted', 9],
    ['q uoted.é"x.g', 10],
    ['list', 11],
    ['list.0.h', 12],
    ['list.1.h', 14],
    ['list.1.i', 15],
    ['list.1.j', 16],
    ['list.1.inner', 17],
    ['list.1.inner.k.l.m', 18],
  ]
  expect(table.map(([path]) => [path, lines.get(path)])).toEqual(table)
  expect(lineOf(lines, ['list', '1', 'absent'])).toBe(13)
  expect(lineOf(lines, ['absent'])).toBe(1)
  expect(verdict).toMatchObject({
    table: {
      a: 'b = 2\n',
      d: { e: ['x,]', { f: 1 }] },
      'q uoted': { 'é"x': { g: new Date('1979-05-27T07:32:00Z') } },
      list: [{ h: 1 }, { h: 2, i: 'a"#b', j: true, inner: { k: { l: { m: 1 } } } }],
    },
  })
})

test('goal: values are exact, and text that TOML 1.0 does not allow is refused with its line', () => {
  expect(tableOf('\uFEFFa = 0x1f\r\nb = 9223372036854775807\r\n')).toEqual({ a: 31, b: 9223372036854775807n })
  const refused: [string, number][] = [
    ['a = 1\na = 2', 2],
    ['[t]\n[t]', 2],
    ['a.b = 1\n[a]', 2],
    ['[t]\na = { b = 1 }\n[t.a]', 3],
    ['a = [1\n', 2],
    ['\na = "x', 2],
    ['a = {\nb = 1 }', 2],
    ['a = { b = 1, }', 1],
    ['a = 07', 1],
    ['a = 2026-02-30', 1],
    ['a = "\\x41"', 1],
    ['a = 1 b = 2', 1],
  ]
  for (const [text, line] of refused) expect([text, tableOf(text)]).toMatchObject([text, { ok: false, line }])
})

test('goal: names of the language are names like any other, and change nothing outside the table', () => {
  const text = '[vm.constructor]\na = 1\n[__proto__]\nb = 1\n[x]\n__proto__ = { c = 1 }\n__proto__.d = 1'
  expect(readToml(text).ok).toBeFalse()
  const table = Object(tableOf(text.replace('\n__proto__.d = 1', '')))
  expect(Object.keys(table)).toEqual(['vm', '__proto__', 'x'])
  expect(Object.entries(table.vm)).toEqual([['constructor', { a: 1 }]])
  expect(Reflect.get(Object, 'a') ?? Reflect.get({}, 'b') ?? table.x.c).toBeUndefined()
})

test('goal: nesting without end neither throws nor hangs', () => {
  const depth = 5_000
  for (const text of [
    `a = ${'['.repeat(depth)}${']'.repeat(depth)}`,
    `a${'.a'.repeat(depth)} = 1`,
    `[a${'.a'.repeat(depth)}]\nb = 1`,
  ]) {
    expect(JSON.stringify(tableOf(text)).length).toBeLessThan(1_000)
  }
})

test('goal: another reader of TOML gets the same out of any table', () => {
  const scalar = fc.oneof(fc.string({ unit: 'grapheme' }), fc.maxSafeInteger(), fc.boolean())
  const name = fc.string({ minLength: 1, maxLength: 6 }).filter(text => text !== '__proto__')
  const { table } = fc.letrec(tie => ({
    value: fc.oneof({ depthSize: 'small' }, scalar, fc.array(scalar, { maxLength: 4 }), tie('table'), tie('tables')),
    tables: fc.array(tie('table'), { minLength: 1, maxLength: 3 }),
    table: fc.dictionary(name, tie('value'), { maxKeys: 4, noNullPrototype: true }),
  }))
  fc.assert(
    fc.property(table, written => {
      const text = stringify(Object(written))
      expect(tableOf(text)).toEqual(otherReader(text))
    }),
    { seed: 20261121, numRuns: 300 },
  )
})
