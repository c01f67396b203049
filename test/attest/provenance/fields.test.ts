// Goal: the readers of documents take exactly what they say, and name the field of what they refuse.

import { expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import {
  count,
  exactly,
  listOf,
  members,
  optional,
  orNull,
  partly,
  type Reader,
  record,
  text,
} from '../../../src/attest/provenance/fields.ts'

const pair = { a: text, b: optional(count) }

test('goal: what is read', () => {
  expect([text('', 'it'), text('x', 'it')]).toEqual(['', 'x'])
  expect([count(0, 'it'), count(Number.MAX_SAFE_INTEGER, 'it')]).toEqual([0, Number.MAX_SAFE_INTEGER])
  expect(members({ a: 1 }, 'it')).toEqual({ a: 1 })
  expect(exactly('x')('x', 'it')).toBe('x')
  expect([orNull(text)(null, 'it'), orNull(text)('x', 'it')]).toEqual([null, 'x'])
  expect([listOf(text)([], 'it'), listOf(text)(['a', 'b'], 'it')]).toEqual([[], ['a', 'b']])
  expect(Object.entries(record(pair)({ b: 1, a: 'x' }, 'it'))).toEqual([
    ['a', 'x'],
    ['b', 1],
  ])
  expect(record(pair)({ a: 'x' }, 'it')).toEqual({ a: 'x' })
  expect(partly(pair)({ a: 'x', c: 2 }, 'it')).toEqual({ a: 'x' })
})

// Goal: each refusal names the field.
test.each<[string, Reader<unknown>, unknown, string]>([
  ['a number for text', text, 1, 'it: not a text'],
  ['null for text', text, null, 'it: not a text'],
  ['text for a count', count, '1', 'it: no count'],
  ['a negative count', count, -1, 'it: no count'],
  ['a fraction', count, 0.5, 'it: no count'],
  ['a count that is not exact', count, 2 ** 53, 'it: no count'],
  ['null for members', members, null, 'it: not an object'],
  ['a list for members', members, [], 'it: not an object'],
  ['text for members', members, 'x', 'it: not an object'],
  ['another word', exactly('x'), 'y', 'it is "y", not x'],
  ['a number or null', orNull(text), 1, 'it: not a text'],
  ['an object for a list', listOf(text), { length: 0 }, 'it: not a list'],
  ['a bad entry', listOf(text), ['a', 1], 'it[1]: not a text'],
  ['a missing member', record(pair), { b: 1 }, 'it: no a'],
  ['an inherited member', record(pair), Object.create({ a: 'x' }), 'it: no a'],
  ['a bad member', record(pair), { a: 1 }, 'it.a: not a text'],
  ['a bad optional member', record(pair), { a: 'x', b: -1 }, 'it.b: no count'],
  ['an optional member that is null', record(pair), { a: 'x', b: null }, 'it.b: no count'],
  ['an unknown member', record(pair), { a: 'x', c: 1 }, 'it: the unknown field "c"'],
  ['a list for a record', record(pair), ['x'], 'it: not an object'],
  ['a missing part', partly(pair), {}, 'it: no a'],
])('%s is refused', (_, read, value, message) => {
  expect(() => read(value, 'it')).toThrow(new Malformed(message))
})
