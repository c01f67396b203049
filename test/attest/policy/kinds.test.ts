// Goal: each kind of value in a policy file takes what its schema says and refuses all else, naming the path. A policy
// that is read more widely than it is written passes evidence that its author refuses.

import { describe, expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { jsonOf } from '../../../src/attest/policy/encode.ts'
import {
  bits,
  chipId,
  hex,
  integer,
  type Kind,
  listOf,
  mask64,
  masks,
  object,
  oneOf,
  oneOrMore,
  orAny,
  text,
} from '../../../src/attest/policy/kinds.ts'

const word = oneOf(['one', 'two'])
const pair = object({ a: word, b: { ...integer(9), whenMissing: 3 }, c: { ...word, remedy: 'write "one"' } })
const rules = bits({ debug: 1, smt: 0 }, { smt: 'any' })

const read = <T>(kind: Kind<T>, value: unknown) => kind.parse(value, 'it')

test('goal: what each kind reads', () => {
  expect(read(word, 'two')).toBe('two')
  expect([0, 1, 9].map(value => read(integer(9), value))).toEqual([0, 1, 9])
  expect([2, 9].map(value => read(integer(9, 2), value))).toEqual([2, 9])
  expect(read(text('[ab]+', 'a or b'), 'abba')).toBe('abba')
  expect(read(mask64(), '0x0')).toBe(0n)
  expect(read(mask64(), '0xffffffffffffffff')).toBe(0xffff_ffff_ffff_ffffn)
  expect(read(hex(2), '00ff')).toEqual(Uint8Array.of(0, 255))
  expect(read(chipId(2), '0001')).toEqual(Uint8Array.of(0, 1))
  expect(read(chipId(2), '0100')).toEqual(Uint8Array.of(1, 0))
  expect(read(masks(), { required: '0x1', forbidden: '0x2' })).toEqual({ required: 1n, forbidden: 2n })
  expect(read(listOf(word), ['two', 'one'])).toEqual(['two', 'one'])
  expect(read(listOf(integer(9)), [3])).toEqual([3])
  expect(
    read(
      listOf(integer(2000)),
      Array.from({ length: 1024 }, (_, at) => at),
    ).length,
  ).toBe(1024)
  expect([read(oneOrMore(word), 'one'), read(oneOrMore(word), ['one', 'two'])]).toEqual(['one', ['one', 'two']])
  expect([read(orAny(word), 'any'), read(orAny(word), 'one')]).toEqual(['any', 'one'])
  expect(read(pair, { c: 'one', a: 'two' })).toEqual({ a: 'two', b: 3, c: 'one' })
  expect(read(pair, { c: 'one', a: 'two', b: 4 })).toEqual({ a: 'two', b: 4, c: 'one' })
  expect(read(rules, { debug: 'forbidden', unknown: 'any' })).toEqual({
    debug: 'forbidden',
    smt: 'any',
    unknown: 'any',
  })
  expect(read(rules, { debug: 'required', smt: 'forbidden', unknown: 'forbidden' })).toEqual({
    ...{ debug: 'required', smt: 'forbidden', unknown: 'forbidden' },
  })
  expect(
    read(listOf(pair), [
      { a: 'one', c: 'one' },
      { a: 'two', c: 'one' },
    ]).length,
  ).toBe(2)
})

describe('refused', () => {
  const missing = 'it is missing; write what you accept, or "any" to skip this check'
  const twice = 'it: an entry stands in it twice'
  // Goal: each refusal names the path and what is wrong there.
  test.each<[string, Kind<unknown>, unknown, string]>([
    ['another word', word, 'three', 'it: not one of one, two'],
    ['no word', word, null, 'it: not one of one, two'],
    ['above', integer(9), 10, 'it: not an integer from 0 to 9'],
    ['below', integer(9, 2), 1, 'it: not an integer from 2 to 9'],
    ['negative', integer(9), -1, 'it: not an integer from 0 to 9'],
    ['a fraction', integer(9), 0.5, 'it: not an integer from 0 to 9'],
    ['a digit as text', integer(9), '5', 'it: not an integer from 0 to 9'],
    ['text around', text('[ab]+', 'a or b'), 'abc', 'it: not a or b'],
    ['text before', text('[ab]+', 'a or b'), 'cab', 'it: not a or b'],
    ['no text', text('[0-9]+', 'digits'), 5, 'it: not digits'],
    ['a leading zero', mask64(), '0x01', 'it: not a number of 64 bits like 0xb'],
    ['capitals', mask64(), '0xA', 'it: not a number of 64 bits like 0xb'],
    ['65 bits', mask64(), '0x10000000000000000', 'it: not a number of 64 bits like 0xb'],
    ['short', hex(2), '00f', 'it: not 2 bytes in lower-case hexadecimal'],
    ['long', hex(2), '00ff00', 'it: not 2 bytes in lower-case hexadecimal'],
    ['capital digits', hex(2), '00FF', 'it: not 2 bytes in lower-case hexadecimal'],
    ['no digits', hex(2), '00fg', 'it: not 2 bytes in lower-case hexadecimal'],
    ['bytes as a list', hex(2), ['0', '0', 'f', 'f'], 'it: not 2 bytes in lower-case hexadecimal'],
    ['a masked chip', chipId(2), '0000', 'it: all zeros is the chip_id of every masked chip'],
    ['a mask alone', masks(), { required: '0x1' }, `it.forbidden: ${missing}`],
    ['no entries', listOf(word), [], 'it: not a list of 1 to 1024'],
    ['1025 entries', listOf(integer(2000)), Array.from({ length: 1025 }, (_, at) => at), 'it: not a list of 1 to 1024'],
    ['an object of entries', listOf(word), { 0: 'one', length: 1 }, 'it: not a list of 1 to 1024'],
    ['a bad entry', listOf(word), ['one', 'three'], 'it[1]: not one of one, two'],
    ['an entry twice', listOf(word), ['one', 'one'], twice],
    ['an object twice', listOf(pair), ['ac', 'ca'].map(order => ofOrder(order)), twice],
    ['a bad one of more', oneOrMore(word), ['one', 'three'], 'it[1]: not one of one, two'],
    ['none of more', oneOrMore(word), [], 'it: not a list of 1 to 1024'],
    ['a word for any', orAny(word), 'all', 'it: not one of one, two'],
    ['no object', pair, 'a', 'it: not an object'],
    ['null', pair, null, 'it: not an object'],
    ['a list', pair, [], 'it: not an object'],
    ['a missing field', pair, { c: 'one' }, `it.a: ${missing}`],
    ['a missing field with advice', pair, { a: 'one' }, 'it.c: it is missing; write "one"'],
    ['an inherited field', pair, Object.create({ a: 'one', c: 'one' }), `it.a: ${missing}`],
    ['an unknown field', pair, { a: 'one', c: 'one', d: 1 }, 'it.d: unknown field'],
    [
      'an unknown long field',
      pair,
      { a: 'one', c: 'one', [`x${'y'.repeat(80)}`]: 1 },
      `it.x${'y'.repeat(63)}: unknown`,
    ],
    ['a bad field', pair, { a: 'one', c: 'three' }, 'it.c: not one of one, two'],
    ['a rule', rules, { debug: 'allowed', unknown: 'any' }, 'it.debug: not one of required, forbidden, any'],
    ['no rule', rules, { smt: 'any', unknown: 'any' }, `it.debug: ${missing}`],
    ['unknown bits required', rules, { debug: 'any', unknown: 'required' }, 'it.unknown: not one of forbidden, any'],
    ['nothing for unknown bits', rules, { debug: 'any' }, `it.unknown: ${missing}`],
  ])('%s', (_, kind, value, message) => {
    expect(() => read(kind, value)).toThrow(message)
    expect(() => read(kind, value)).toThrow(Malformed)
  })
})

/** The same object, its fields in this order. */
function ofOrder(order: string): Record<string, string> {
  return Object.fromEntries([...order].map(name => [name, 'one']))
}

test('goal: the schemas say the same', () => {
  expect(word.schema).toEqual({ enum: ['one', 'two'] })
  expect(integer(9, 2).schema).toEqual({ type: 'integer', minimum: 2, maximum: 9 })
  expect(text('a', 'a').schema).toEqual({ type: 'string', pattern: '^a$' })
  expect(mask64().schema).toEqual({ type: 'string', pattern: '^0x(0|[1-9a-f][0-9a-f]{0,15})$' })
  expect(hex(2).schema).toEqual({ type: 'string', pattern: '^[0-9a-f]{4}$' })
  expect(chipId(2).schema).toEqual({ type: 'string', pattern: '^(?!0+$)[0-9a-f]{4}$' })
  const list = { type: 'array', items: word.schema, minItems: 1, maxItems: 1024, uniqueItems: true }
  expect(listOf(word).schema).toEqual(list)
  expect(oneOrMore(word).schema).toEqual({ anyOf: [word.schema, list] })
  expect(orAny(word).schema).toEqual({ anyOf: [{ const: 'any' }, word.schema] })
  expect(pair.schema).toEqual({
    type: 'object',
    properties: { a: word.schema, b: { type: 'integer', minimum: 0, maximum: 9, default: 3 }, c: word.schema },
    required: ['a', 'c'],
    additionalProperties: false,
  })
  const rule = { enum: ['required', 'forbidden', 'any'] }
  expect(rules.schema).toEqual({
    type: 'object',
    properties: { debug: rule, smt: { ...rule, default: 'any' }, unknown: { enum: ['forbidden', 'any'] } },
    required: ['debug', 'unknown'],
    additionalProperties: false,
  })
})

test('goal: the JSON form of what was read', () => {
  expect(jsonOf({ a: [Uint8Array.of(0, 255)], b: 0x10fn, c: null, d: 'any', e: 10n, f: { g: 1 } })).toEqual({
    ...{ a: ['00ff'], b: '0x10f', c: null, d: 'any', e: '0xa', f: { g: 1 } },
  })
})
