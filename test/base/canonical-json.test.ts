// Goal: equal values have one spelling, that of RFC 8785, whatever the order in which they were built.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { canonicalJson } from '../../src/base/canonical-json.ts'

test('goal: the example of RFC 8785 (3.2.2, 3.2.4) comes out as the RFC has it', () => {
  const value = {
    numbers: [Number('333333333.33333329'), 1e30, 4.5, 2e-3, 0.000000000000000000000000001],
    string: '€$\u000f\nA\'B"\\\\"/',
    literals: [null, true, false],
  }
  expect(canonicalJson(value)).toBe(
    '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
  )
})

test('goal: names are sorted by UTF-16 code units (3.2.3)', () => {
  const names = { '€': 1, '\r': 2, '\ufb33': 3, '1': 4, '😀': 5, '\u0080': 6, ö: 7 }
  const order = [...canonicalJson(names).matchAll(/:(\d)/g)].map(found => Number(found[1]))
  expect(order).toEqual([2, 4, 6, 7, 1, 5, 3])
})

test('goal: it reads back as the same value, and the order of insertion is not in it', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.oneof(fc.integer(), fc.string(), fc.array(fc.boolean()))), value => {
      const text = canonicalJson(value)
      expect(JSON.parse(text)).toEqual({ ...value })
      expect(canonicalJson(Object.fromEntries(Object.entries(value).toReversed()))).toBe(text)
    }),
  )
})
